package messages

import (
	"regexp"
	"strings"

	"github.com/purserhq/purser/internal/gateway/shapes"
)

// renamed are the members of the canonical request that have another name here.
var renamed = map[string]string{
	"stop":                "stop_sequences",
	"reasoning_effort":    "output_config.effort",
	"response_format":     "output_config.format",
	"parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}

var (
	firstMember = regexp.MustCompile(`^[a-z_]+`)

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
	if at, rest, ok := shapes.FindPlace(c.places, canonical); ok {
		return at + memberNames.Replace(rest)
	}
	if at, rest, ok := shapes.FindTool(c.tools, canonical); ok {
		return at + memberNames.Replace(rest)
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
