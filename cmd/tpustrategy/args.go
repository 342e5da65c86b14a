package main

import (
	"slices"
	"strings"
)

// plainArgs returns a command line as kong reads it, of one as people write it: help and help
// COMMAND, -json, a number below 0 after a flag, and a sharding whose first dimension is not split,
// as in -,a+b.
func plainArgs(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	var plain, last []string
	for i, arg := range args {
		switch {
		case arg == "--":
			return slices.Concat(plain, []string{"--"}, last, args[i+1:])
		case arg == "-json":
			plain = append(plain, "--json")
		case strings.HasPrefix(arg, "-,"):
			last = append(last, arg)
		case belowZero(arg) && i > 0 && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "="):
			plain[len(plain)-1] += "=" + arg
		default:
			plain = append(plain, arg)
		}
	}
	if last != nil {
		plain = append(append(plain, "--"), last...)
	}
	return plain
}

func belowZero(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && '0' <= arg[1] && arg[1] <= '9'
}
