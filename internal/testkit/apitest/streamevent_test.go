package apitest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestStreamEventMayMatchTwo: the last chunk of the OpenAI-compatible route is a chunk and a
// stream's end, and a client that validates events takes it.
func TestStreamEventMayMatchTwo(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	chunk := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(okChunk), "data: "), "}")
	final := strings.TrimPrefix(strings.TrimSpace(okFinal), "data: {")
	for _, text := range []string{chunk + "," + final, chunk + "}", "{" + final} {
		value, err := parseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.validate(schemaOf("StreamEvent"), value); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestProviderErrorsDocumentTheirHeaders: whoever reads the document knows that a 502 of a call
// says when to retry, and whether.
func TestProviderErrorsDocumentTheirHeaders(t *testing.T) {
	t.Parallel()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/ai/m", "/v1/ai/features/f", "/v1/chat/completions"} {
		req, err := http.NewRequest(http.MethodPost, "http://localhost"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.findOperation(req)
		if err != nil || f.operation == nil {
			t.Fatal(path, err)
		}
		for _, status := range []int{http.StatusBadGateway, http.StatusTooManyRequests} {
			documented, _ := f.response(status)
			var names []string
			for name := range documented.Headers {
				names = append(names, name)
			}
			if !slices.Contains(names, "Retry-After") || !slices.Contains(names, "X-Should-Retry") {
				t.Errorf("%s: %d documents %q", path, status, names)
			}
		}
	}
}
