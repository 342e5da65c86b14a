package main

import (
	"slices"
	"strings"
)

// normalizeArgs rewrites arguments that the parser kong rejects: help, help COMMAND, -json, a
// negative number after a flag, and a sharding that begins with a dash, such as -,a+b.
func normalizeArgs(args []string) []string {
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
		case isNegativeNumber(arg) && i > 0 && strings.HasPrefix(args[i-1], "--") && !strings.Contains(args[i-1], "="):
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

func isNegativeNumber(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && '0' <= arg[1] && arg[1] <= '9'
}
