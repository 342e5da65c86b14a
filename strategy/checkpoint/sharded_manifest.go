package checkpoint

type shardedManifest struct{}
