package clusterresolver

// DefaultOptions configures [Default]. The zero value is the default, with an empty environment.
type DefaultOptions struct {
	// Getenv reads the environment. Nil stands for an empty environment; programs give os.Getenv.
	Getenv Getenv
	// Metadata reads the metadata server. Nil stands for a client with default options.
	Metadata *MetadataClient
	// API looks up the TPU that TPU_NAME names. If it is nil, TPU_NAME must hold addresses.
	API CloudAPI
	// First lists resolvers that are asked before all others.
	First []Resolver
	SliceOptions
}

// Default returns the usual chain: First, [TFConfig], [GKE], [TPUVM] and [CloudTPU], in this order.
// The package documentation gives the reasons for the order.
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
