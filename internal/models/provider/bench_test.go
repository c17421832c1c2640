package provider

import (
	"bytes"
	"encoding/json"
	"testing"
)

const sampleChunk = `{"id":"chatcmpl-9fJk2mX8qLr4TtYw","object":"chat.completion.chunk","created":1763712000,"model":"gpt-6-sol-2026-09-01","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":" the quick brown"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aB3dE5fG7h"}`

const sampleUsage = `{"prompt_tokens":1200,"completion_tokens":345,"total_tokens":1545,"prompt_tokens_details":{"cached_tokens":1024,"cache_write_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":64,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`

func BenchmarkClassify(b *testing.B) {
	chunk := []byte(sampleChunk)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		if kind, _ := Classify(chunk); kind != Ordinary {
			b.Fatal(kind)
		}
	}
}

// BenchmarkValid is what the standard library needs for the check alone.
func BenchmarkValid(b *testing.B) {
	chunk := []byte(sampleChunk)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if !json.Valid(chunk) {
			b.Fatal("not valid")
		}
	}
}

func BenchmarkParseUsage(b *testing.B) {
	usage := []byte(sampleUsage)
	b.ReportAllocs()
	for b.Loop() {
		if ParseUsage(usage) == nil {
			b.Fatal("unusable")
		}
	}
}

// BenchmarkRun relays a stream of 100 chunks that arrives in reads of 8 KiB.
func BenchmarkRun(b *testing.B) {
	text := bytes.Repeat(AppendFrame(nil, []byte(sampleChunk)), 100)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	keep := func(e Event) (bool, error) {
		kind, _ := Classify(e.Payload)
		return kind == Ordinary, nil
	}
	for b.Loop() {
		s := NewSSE(bytes.NewReader(text))
		n := 0
		for {
			run, err := s.Run(keep)
			if err != nil {
				break
			}
			n += len(run)
		}
		if n != len(text) {
			b.Fatal(n)
		}
	}
}
