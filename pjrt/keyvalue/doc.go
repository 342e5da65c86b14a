// Package keyvalue has stores of keys and values by which the PJRT clients of a job's processes find
// each other. They are the [pjrt.ClientOptions.KeyValues] of plugins that ask for one, such as that
// for CUDA; the plugins for TPUs and CPUs need none.
//
// [Memory] serves clients of one process. For several processes one of them serves a store at an
// address, and the others reach it there:
//
//	store := &keyvalue.Memory{}
//	server, err := keyvalue.Listen("tcp", "host-0:8479", store, secret) // in process 0
//	defer server.Close()
//	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{
//		Options:   map[string]any{"num_nodes": int64(4), "node_id": int64(2)},
//		KeyValues: keyvalue.Dial("tcp", "host-0:8479", secret),
//	})
//
// # Who is let in
//
// A server lets in who proves that it knows the secret, before it reads anything else of it, and a
// client asks only a server that proves the same: package internal/handshake. The secret itself is
// not sent. Requests and values are neither encrypted nor signed: serve a store inside the job's own
// network only. A server without a secret is refused, and an address without a host is reached from
// the same machine only.
//
// # Limits
//
// A key has at most [MaxKey] bytes and a value at most [MaxValue]. What peers send is checked; one
// that sends anything else is cut off. Each request has 30 seconds to come and its answer 30 seconds
// to be taken; between them only a Get waits, and the server says every 5 seconds that it does.
package keyvalue
