package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// completeWord is the first argument when a shell calls this program to complete a word.
const completeWord = "__complete"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

func (completionCmd) Help() string {
	return `Prints a completion script for subcommands, flags and their values. Add one of these lines to the start-up file of the shell:

  source <(tpustrategy completion bash)
  source <(tpustrategy completion zsh)
  tpustrategy completion fish | source`
}

// shells maps the name of a shell to its completion script. Each script calls this program for the
// possible words, and completes file names if there are none.
var shells = map[string]string{
	"bash": `_tpustrategy() {
  local words
  words=$(tpustrategy ` + completeWord + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -o bashdefault -F _tpustrategy tpustrategy
`,
	"zsh": `_tpustrategy() {
  local -a found
  found=(${(f)"$(tpustrategy ` + completeWord + ` "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _tpustrategy tpustrategy
`,
	"fish": `complete -c tpustrategy -a '(tpustrategy ` + completeWord +
		` (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

func (c *completionCmd) Run(a *app, root *cli) error {
	if root.JSON {
		return a.printJSON(map[string]string{"shell": c.Shell, "script": shells[c.Shell]})
	}
	_, err := fmt.Fprint(a.stdout, shells[c.Shell])
	return err
}

// complete prints the possible completions of the last word of a command line.
func (a *app) complete(top *kong.Node, line []string) {
	if len(line) == 0 {
		line = []string{""}
	}
	node, before, begun := top, "", line[len(line)-1]
	for _, word := range line[:len(line)-1] {
		for _, child := range node.Children {
			if child.Name == word {
				node = child
			}
		}
		before = word
	}
	var words []string
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			switch {
			case before == "--"+flag.Name && !flag.IsBool():
				a.printCompletions(flag.EnumSlice(), begun)
				return // the last word is the flag's value
			case strings.HasPrefix(begun, "-"):
				words = append(words, "--"+flag.Name)
			}
		}
	}
	if !strings.HasPrefix(begun, "-") {
		for _, child := range node.Children {
			if !child.Hidden {
				words = append(words, child.Name)
			}
		}
		for _, argument := range node.Positional {
			words = append(words, argument.EnumSlice()...)
		}
	}
	a.printCompletions(words, begun)
}

func (a *app) printCompletions(words []string, begun string) {
	for _, word := range words {
		if word != "" && strings.HasPrefix(word, begun) {
			fmt.Fprintln(a.stdout, word)
		}
	}
}
