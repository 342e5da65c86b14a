package clusterresolver

// DefaultOptions configure [Default]. The zero value is the default, with an empty
// environment.
type DefaultOptions struct {
	// Getenv reads the environment; nil means an empty one. Programs give os.Getenv.
	Getenv Getenv
	// Metadata reads the metadata server; nil means a client with default options.
	Metadata *MetadataClient
	// API looks up the TPU that TPU_NAME names. Without it only addresses work there.
	API CloudAPI
	// First are asked before all others.
	First []Resolver
	SliceOptions
}

// Default returns the usual chain: First, [TFConfig], [GKE], [TPUVM], [CloudTPU]. The
// package documentation gives the reasons for the order.
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
