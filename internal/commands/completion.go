package commands

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/purserhq/purser/internal/apps/webhooks"
)

type helpCmd struct {
	Command []string `arg:"" optional:"" predict:"command" help:"The command, such as ledger verify."`
}

// Help is shown by purser help --help.
func (helpCmd) Help() string { return "Example:\n  purser help ledger verify" }

// Run shows the help of a command, or that of purser.
func (c helpCmd) Run(p *program) error {
	if code := p.runCommand(append(slices.Clone(c.Command), "--help")); code != exitOK {
		return exitError{nil, code} // it was printed
	}
	return nil
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown by purser completion --help.
func (completionCmd) Help() string {
	return `Completes commands, flags, and the values that purser knows. Load the script when your shell starts:

  bash   echo 'eval "$(purser completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(purser completion zsh)"' >> ~/.zshrc, after the line with compinit
  fish   purser completion fish > ~/.config/fish/completions/purser.fish

Example:
  eval "$(purser completion bash)"`
}

// completionScripts ask purser complete-words for the words that fit. The shell completes file names if there are none.
var completionScripts = map[string]string{
	"bash": `_purser() {
  local IFS=$'\n'
  COMPREPLY=($(purser complete-words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _purser purser
`,
	"zsh": `_purser() {
  local -a answers
  answers=(${(f)"$(purser complete-words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#answers )); then compadd -- $answers; else _files; fi
}
compdef _purser purser
`,
	"fish": `function __purser
  set -l words (commandline -opc) (commandline -ct)
  purser complete-words $words[2..-1] 2>/dev/null
end
complete -c purser -a '(__purser)'
`,
}

// Run prints the script.
func (c completionCmd) Run(p *program) error {
	_, err := io.WriteString(p.out, completionScripts[c.Shell])
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:""`
}

// Run prints the words that may stand in place of the last one, a line each.
func (c completeCmd) Run(p *program, model *kong.Application) error {
	if len(c.Words) == 0 {
		return errors.New("nothing to complete")
	}
	for _, word := range completeWords(p, model.Node, c.Words) {
		if _, err := fmt.Fprintln(p.out, word); err != nil {
			return err
		}
	}
	return nil
}

// completeWords returns the words that begin with the last one of words and may stand in its place.
func completeWords(p *program, node *kong.Node, words []string) (found []string) {
	current := words[len(words)-1]
	var value *kong.Flag // its value is next
	position := 0        // of the next argument
	for _, word := range words[:len(words)-1] {
		if word == "=" { // bash makes three words of --flag=value
			continue
		}
		if value != nil {
			value = nil
			continue
		}
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			if f := findFlag(node, name); f != nil && !f.IsBool() {
				value = f
			}
			continue
		}
		if child := findChild(node, word); child != nil {
			node = child
			continue
		}
		position++
	}
	if current == "=" {
		current = ""
	}
	var offered []string
	switch {
	case value != nil:
		offered = predictValues(p, value.Value)
	case strings.HasPrefix(current, "-"):
		offered = flagNames(node)
	case node.Tag != nil && node.Name == "help":
		offered = childNames(root(node))
	case position < len(node.Positional):
		offered = predictValues(p, node.Positional[position])
	default:
		offered = childNames(node)
	}
	for _, word := range offered {
		if strings.HasPrefix(word, current) {
			found = append(found, word)
		}
	}
	return found
}

func root(node *kong.Node) *kong.Node {
	for node.Parent != nil {
		node = node.Parent
	}
	return node
}

func findChild(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name && !child.Hidden {
			return child
		}
	}
	return nil
}

func childNames(node *kong.Node) (names []string) {
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}

// findFlag returns a flag of a command or of those that it belongs to; nil = there is none.
func findFlag(node *kong.Node, name string) *kong.Flag {
	for ; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}

func flagNames(node *kong.Node) (names []string) {
	for ; node != nil; node = node.Parent {
		for _, f := range node.Flags {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		}
	}
	return names
}

// predictors return the values that fit a flag or an argument with the tag predict.
var predictors = map[string]func(p *program) []string{
	"event": func(*program) []string { return webhooks.Types },
	"profile": func(p *program) (names []string) {
		list, err := newProfileStore(p).list()
		if err != nil {
			return nil
		}
		for _, pr := range list {
			names = append(names, pr.Name)
		}
		return names
	},
}

// predictValues returns the values that fit a flag or an argument, as far as they are known.
func predictValues(p *program, v *kong.Value) []string {
	if predict, ok := predictors[v.Tag.Get("predict")]; ok {
		return predict(p)
	}
	if v.Enum != "" {
		return v.EnumSlice()
	}
	return nil
}
