package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// Agents offer tools that a provider runs by itself, such as web search, beside their own. The model works without
// them, so they are dropped. Who asks for nothing else must not get an answer from memory, and is refused (decision
// 173).

// IsDroppable reports whether a type of tool, of any provider, is dropped beside other tools. Types have dates behind
// their names.
func IsDroppable(kind string) bool {
	return strings.HasPrefix(kind, "web_search") || kind == "image_generation"
}

// DropTool drops such a tool. The response names the member that asked for it.
func (r *Request) DropTool(kind, member string) {
	r.dropped = kind
	r.Ignore(member)
}

// HasDropped reports whether such a tool was dropped.
func (r *Request) HasDropped() bool { return r.dropped != "" }

// ForceDropped notes that the client forces a call of a tool that was dropped.
func (r *Request) ForceDropped() { r.forcesDropped = true }

// checkDropped refuses a request that asks for a tool of a provider alone. If it does not want a call, the choice that
// is left has nothing to choose from, and is dropped too.
func (r *Request) checkDropped() error {
	switch {
	case !r.HasDropped() || len(r.Tools) > 0 && !r.forcesDropped:
		return nil
	case r.forcesDropped || r.ToolChoice.Mode != "none":
		return invalid("tools: %s is not offered here; declare a function, and run it in the client", r.dropped)
	}
	r.dropped, r.ToolChoice, r.ParallelToolCalls = "", provider.ToolChoice{}, nil
	return nil
}

// AllowTools keeps only the tools that tool_choice allows, with its mode: auto or required. It returns their places
// among those that there were.
func (r *Request) AllowTools(mode string, names []string) (kept []int, err error) {
	if mode != "auto" && mode != "required" {
		return nil, invalid("tool_choice: the mode of allowed_tools must be auto or required")
	}
	var tools []provider.Tool
	var at []int
	for i := range r.Tools {
		if slices.Contains(names, r.Tools[i].Name) {
			tools, kept, at = append(tools, r.Tools[i]), append(kept, i), append(at, r.findTool(i))
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(tools, func(t provider.Tool) bool { return t.Name == name }) {
			return nil, invalid("tool_choice: %q is not among the tools", name)
		}
	}
	if len(tools) == 0 && !r.HasDropped() {
		return nil, invalid("tool_choice: allowed_tools must name a tool")
	}
	r.Tools, r.ToolChoice = tools, provider.ToolChoice{Mode: mode}
	if r.toolAt != nil {
		r.toolAt = at
	}
	return kept, nil
}

// findTool returns where a tool stands in the client's body.
func (r *Request) findTool(i int) int {
	if i < len(r.toolAt) {
		return r.toolAt[i]
	}
	return i
}

var toolMember = regexp.MustCompile(`^tools\[(\d+)\](.*)$`)

// MemberName returns how a client of chat completions names a member of the canonical request.
func (r *Request) MemberName(canonical string) string {
	if m := toolMember.FindStringSubmatch(canonical); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil {
			return fmt.Sprintf("tools[%d]%s", r.findTool(i), m[2])
		}
	}
	return canonical
}
