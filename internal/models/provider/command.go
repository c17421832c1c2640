package provider

import "strings"

// Commands returns what follows a word such as "!mock" in the lines of the last user message, or of the texts to embed,
// that begin with it, without the spaces around. Tests of apps ask for faults by such lines. What is beyond maxCommands
// lines, or maxCommandBytes of one, is left out.
func (r *Request) Commands(word string) []string {
	if r.Embedding != nil {
		return embeddingCommands(r.Embedding.Inputs, word)
	}
	for i := len(r.Turns) - 1; i >= 0; i-- {
		if r.Turns[i].Role != "user" {
			continue
		}
		var list []string
		for _, b := range r.Turns[i].Blocks {
			list = appendCommands(list, b.Text, word)
		}
		return list
	}
	return nil
}

func embeddingCommands(inputs []EmbeddingInput, word string) (list []string) {
	for i := range inputs {
		list = appendCommands(list, inputs[i].Text, word)
	}
	return list
}

func appendCommands(list []string, text, word string) []string {
	for line := range strings.Lines(text) {
		if len(list) == maxCommands {
			break
		}
		if rest, ok := cutCommand(line, word); ok {
			list = append(list, rest[:min(len(rest), maxCommandBytes)])
		}
	}
	return list
}

// What bounds the commands of a message, which may be of any length.
const (
	maxCommands     = 100
	maxCommandBytes = 1 << 10
)

// IsCommand reports whether a line of a message begins with one of the words.
func IsCommand(line string, words ...string) bool {
	for _, word := range words {
		if _, ok := cutCommand(line, word); ok {
			return true
		}
	}
	return false
}

// cutCommand returns what follows the word, which must be followed by a space or the end of the line.
func cutCommand(line, word string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(line, word)
	if !ok || rest != "" && !strings.HasPrefix(rest, " ") && strings.TrimSpace(rest) != "" {
		return "", false
	}
	return strings.TrimSpace(rest), true
}
