package clusterresolver

// DefaultOptions configures [Default]. The zero value uses an empty environment.
type DefaultOptions struct {
	// Getenv reads the environment, usually os.Getenv. If nil, the environment is empty.
	Getenv Getenv
	// Metadata reads the metadata server. If nil, a client with default options is used.
	Metadata *MetadataClient
	// API looks up the TPU in TPU_NAME. If nil, TPU_NAME must contain addresses.
	API CloudAPI
	// First lists resolvers that are called before all others.
	First []Resolver
	SliceOptions
}

// Default returns a chain of First, [TFConfig], [GKE], [TPUVM] and [CloudTPU]. The package
// documentation explains this order.
func Default(o DefaultOptions) Chain {
	md := o.Metadata
	if md == nil {
		md = NewMetadataClient(MetadataOptions{})
	}
	list := append([]Resolver{}, o.First...)
	return Chain{append(list,
		TFConfig{Getenv: o.Getenv, RPCLayer: o.RPCLayer},
		GKE{Getenv: o.Getenv, SliceOptions: o.SliceOptions},
		TPUVM{Getenv: o.Getenv, Metadata: md, SliceOptions: o.SliceOptions},
		CloudTPU{Getenv: o.Getenv, Metadata: md, API: o.API, SliceOptions: o.SliceOptions},
	)}
}
