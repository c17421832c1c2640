package messages

import (
	"regexp"
	"strconv"
	"strings"
)

// renamed are the members of the canonical request that have another name here.
var renamed = map[string]string{
	"stop":                "stop_sequences",
	"reasoning_effort":    "output_config.effort",
	"response_format":     "output_config.format",
	"parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}

var (
	messageMember = regexp.MustCompile(`^messages\[(\d+)\](?:\.(content|tool_calls)\[(\d+)\])?(.*)$`)
	toolMember    = regexp.MustCompile(`^tools\[(\d+)\](.*)$`)
	firstMember   = regexp.MustCompile(`^[a-z_]+`)

	memberNames = strings.NewReplacer(
		".function.arguments", ".input",
		".function.parameters", ".input_schema",
		".function.name", ".name",
		".json_schema.schema", ".schema",
		".image_url.url", ".source",
		".tool_call_id", ".tool_use_id",
	)
)

// MemberName returns Anthropic's name of a member of the canonical request (see shapes.Call).
func (c *Call) MemberName(canonical string) string {
	if m := messageMember.FindStringSubmatch(canonical); m != nil {
		if at, ok := c.findPlace(m[1], m[2], m[3]); ok {
			return at + memberNames.Replace(m[4])
		}
		return canonical
	}
	if m := toolMember.FindStringSubmatch(canonical); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(c.tools) {
			return c.tools[i] + memberNames.Replace(m[2])
		}
	}
	first := firstMember.FindString(canonical)
	rest := memberNames.Replace(canonical[len(first):])
	if name := renamed[first]; name != "" {
		first = name
	}
	if first == "output_config.effort" && c.fromThinking {
		first = "thinking"
	}
	return first + rest
}

// findPlace returns the path of a canonical message, or of one of its parts or calls.
func (c *Call) findPlace(message, list, element string) (at string, ok bool) {
	i, err := strconv.Atoi(message)
	if err != nil || i >= len(c.places) {
		return "", false
	}
	p := &c.places[i]
	paths := p.parts
	switch list {
	case "":
		return p.at, true
	case "tool_calls":
		paths = p.calls
	}
	j, err := strconv.Atoi(element)
	if err != nil || j >= len(paths) {
		return "", false
	}
	return paths[j], true
}
