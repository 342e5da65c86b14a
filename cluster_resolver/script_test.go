package clusterresolver

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write the scripts' expected outputs anew")

// TestScripts runs the scripts in testdata/script. Scripts set variables, write files
// metadata/<key>, and then call
//
//	resolve NAME [allow-errors]
//
// which prints the cluster or, on failure, the error on standard error. NAME is the name of a
// resolver, or "default" for the default chain, which also prints its attempts.
func TestScripts(t *testing.T) {
	closed := closedPort(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"resolve": func(ts *testscript.TestScript, neg bool, args []string) { resolveCommand(t, closed, ts, neg, args) },
		},
	})
}

func resolveCommand(t *testing.T, closed string, ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: resolve NAME [allow-errors]")
	}
	var transport http.RoundTripper = redirect{closed, &http.Transport{}}
	if values := readMetadata(ts); len(values) > 0 {
		transport = serve(t, newMetadataServer(values))
	}
	options := SliceOptions{AllowErrors: len(args) > 1 && args[1] == "allow-errors"}
	md := NewMetadataClient(MetadataOptions{Transport: transport})
	chain := Default(DefaultOptions{Getenv: ts.Getenv, Metadata: md, SliceOptions: options})
	var r Resolver = chain
	if args[0] != "default" {
		r = nil
		for _, each := range chain.Resolvers {
			if each.Name() == args[0] {
				r = each
			}
		}
	}
	if r == nil {
		ts.Fatalf("no resolver %q", args[0])
	}
	c, err := r.Resolve(t.Context())
	if chain, ok := r.(Chain); ok && err == nil {
		var attempts []Attempt
		c, attempts, err = chain.ResolveAttempts(t.Context())
		for _, a := range attempts {
			fmt.Fprintf(ts.Stdout(), "attempt %s\n", a)
		}
	}
	switch {
	case err != nil && !neg:
		ts.Fatalf("resolve: %v", err)
	case err != nil:
		fmt.Fprintf(ts.Stderr(), "%v\nnot detected: %v\n", err, errors.Is(err, ErrNotDetected))
		return
	case neg:
		ts.Fatalf("resolve succeeded:\n%s", c)
	}
	fmt.Fprint(ts.Stdout(), c)
}

func readMetadata(ts *testscript.TestScript) map[string]string {
	root := ts.MkAbs("metadata")
	values := map[string]string{}
	filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			key, _ := filepath.Rel(root, path)
			values[filepath.ToSlash(key)] = strings.TrimSuffix(ts.ReadFile(path), "\n")
		}
		return nil
	})
	return values
}
