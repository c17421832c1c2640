package provider

import "testing"

func TestAppendArguments(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		``:                                       `{}`,
		" \n":                                    `{}`,
		` {"a": [1, "x"]} `:                      `{"a": [1, "x"]}`,
		`{"city": "Osl`:                          `{"invalid_json":"{\"city\": \"Osl"}`,
		`null`:                                   `{"invalid_json":"null"}`,
		`[]`:                                     `{"invalid_json":"[]"}`,
		`{} {}`:                                  `{"invalid_json":"{} {}"}`,
		"{\"a\":\"\xff\"}":                       "{\"invalid_json\":\"{\\\"a\\\":\\\"\uFFFD\\\"}\"}",
		`{"a":"\ud83d"}`:                         `{"a":"\ufffd"}`,
		`{"a":"\uDE00\ud83d\ude00\ud83d\u0041"}`: `{"a":"\ufffd\ud83d\ude00\ufffd\u0041"}`,
		`{"a":"\\ud83d\\"}`:                      `{"a":"\\ud83d\\"}`,
	} {
		if got := string(AppendArguments(nil, arguments)); got != want {
			t.Errorf("%q: %s, want %s", arguments, got, want)
		}
	}
}
