// Package keyvalue implements key-value stores through which the PJRT clients of several processes
// exchange data. They are used as [pjrt.ClientOptions.KeyValues] by plugins that need a store, such
// as the CUDA plugin. TPU and CPU plugins need none.
//
// [Memory] is a store for the clients of one process. For several processes, one process serves a
// store at an address, and the others connect to it:
//
//	store := &keyvalue.Memory{}
//	server, err := keyvalue.Listen("tcp", "host-0:8479", store, secret) // in process 0
//	defer server.Close()
//	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{
//		Options:   map[string]any{"num_nodes": int64(4), "node_id": int64(2)},
//		KeyValues: keyvalue.Dial("tcp", "host-0:8479", secret),
//	})
//
// # Security
//
// Server and client prove to each other that they know the secret before the server reads a request.
// The secret is not sent; see package internal/handshake. Requests and values are neither encrypted
// nor signed, so a store should be served only in the internal network of the job. The secret must
// not be empty. An address without a host accepts only connections from the same machine.
//
// # Limits
//
// A key has at most [MaxKeyBytes] bytes, and a value at most [MaxValueBytes]. The server checks all
// input and closes connections that send invalid data. Sending a request and receiving a response may
// take 30 seconds each. Only Get waits longer, and the server then sends a message every 5 seconds.
package keyvalue
