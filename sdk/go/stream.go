package purser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
)

// A Stream is the answer to a call, as the model writes it. It is for one goroutine and is read once.
type Stream struct {
	connection *Connection
	ctx        context.Context
	path       string
	chat       ChatRequest

	read   bool // Chunks was called
	answer Answer
	bill   *Bill
	text   strings.Builder
	calls  []ToolCall
}

// A Chunk is a part of a streamed answer.
type Chunk struct {
	Resource
	Text         string // what follows in the text of the first choice; may be ""
	FinishReason string // in the last chunk of the model: stop, length, tool_calls, content_filter, or another one
}

// Stream calls a model. The call is made when Chunks is read:
//
//	stream := connection.Stream(ctx, "gpt-6-luna", chat)
//	for chunk, err := range stream.Chunks() {
//		if err != nil {
//			return err
//		}
//		fmt.Print(chunk.Text)
//	}
//	bill, err := stream.Bill()
func (c *Connection) Stream(ctx context.Context, model string, chat ChatRequest) *Stream {
	return &Stream{connection: c, ctx: ctx, path: pathOf("v1", "ai", model), chat: chat}
}

// StreamFeature calls the model that is set as the default_model of a feature.
func (c *Connection) StreamFeature(ctx context.Context, slug string, chat ChatRequest) *Stream {
	chat.Feature = ""
	return &Stream{connection: c, ctx: ctx, path: pathOf("v1", "ai", "features", slug), chat: chat}
}

// Chunks makes the call and returns its chunks. A loop that ends early ends the call: its user pays for what was
// delivered. After an error nothing follows.
func (s *Stream) Chunks() iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if s.read {
			yield(Chunk{}, errors.New("purser: a stream is read once"))
			return
		}
		s.read = true
		r, err := s.connection.chatRequest(s.path, s.chat, map[string]any{"stream": true})
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		opened, err := s.connection.client.openStream(s.ctx, r)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		defer opened.close()
		s.answer.RequestID = opened.header.Get("X-Request-Id")
		s.answer.Replayed = opened.header.Get("Idempotent-Replayed") == "true"
		if err := s.readEvents(opened, yield); err != nil {
			yield(Chunk{}, err)
		}
	}
}

type streamEvent struct {
	Choices []struct {
		Index        int    `json:"index"`
		Delta        delta  `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Error    json.RawMessage `json:"error"`
	SvcFinal *svcFinal       `json:"svc_final"`
}

type delta struct {
	Content   string            `json:"content"`
	ToolCalls []json.RawMessage `json:"tool_calls"`
}

type svcFinal struct {
	Settlement string          `json:"settlement"`
	Usage      *Usage          `json:"usage"`
	Svc        json.RawMessage `json:"svc"`
}

// readEvents yields the chunks of a stream. It returns the error with which the stream ended, after its bill.
func (s *Stream) readEvents(opened *openStream, yield func(Chunk, error) bool) error {
	var failure error
	for {
		event, err := opened.next()
		if err != nil {
			return s.brokenStream(failure, err)
		}
		if string(event.data) == "[DONE]" {
			s.finishAnswer()
			return failure
		}
		read, err := decode[streamEvent](event.data)
		if err != nil {
			return s.brokenStream(failure, err)
		}
		if read.Error != nil {
			failure = newStreamError(event.data, s.answer.RequestID)
		}
		if read.SvcFinal != nil {
			if err := s.setBill(*read.SvcFinal); err != nil {
				return err
			}
		}
		if read.Choices == nil {
			continue
		}
		chunk, err := s.addChunk(read)
		if err != nil {
			return err
		}
		chunk.keepRaw(event.data)
		if !yield(chunk, nil) {
			return nil
		}
	}
}

// brokenStream returns the error of a stream that ended too soon.
func (s *Stream) brokenStream(failure, err error) error {
	if failure != nil {
		return failure
	}
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	broken := newOwnError(CodeStreamBroken, err, "the stream ended too soon: %v", err)
	broken.RequestID = s.answer.RequestID
	return broken
}

// addChunk adds a chunk to the answer.
func (s *Stream) addChunk(read streamEvent) (chunk Chunk, err error) {
	for _, choice := range read.Choices {
		if choice.Index != 0 {
			continue
		}
		chunk.Text += choice.Delta.Content
		if choice.FinishReason != "" {
			chunk.FinishReason, s.answer.FinishReason = choice.FinishReason, choice.FinishReason
		}
		for _, part := range choice.Delta.ToolCalls {
			if err := s.addToolCall(part); err != nil {
				return Chunk{}, err
			}
		}
	}
	s.text.WriteString(chunk.Text)
	return chunk, nil
}

// addToolCall adds a part of a tool's call to the one that its index names.
func (s *Stream) addToolCall(data []byte) error {
	place, err := decode[struct {
		Index int `json:"index"`
	}](data)
	if err != nil {
		return err
	}
	part, err := decode[ToolCall](data)
	if err != nil {
		return err
	}
	if place.Index < 0 || place.Index > 1000 {
		return errors.New("purser: unexpected answer: the index of a tool call")
	}
	for len(s.calls) <= place.Index {
		s.calls = append(s.calls, ToolCall{})
	}
	call := &s.calls[place.Index]
	call.ID, call.Name = cmp.Or(part.ID, call.ID), cmp.Or(part.Name, call.Name)
	call.Arguments += part.Arguments
	if part.Extra != nil {
		call.Extra = part.Extra
	}
	return nil
}

func (s *Stream) setBill(final svcFinal) error {
	bill := Bill{}
	if len(final.Svc) > 0 && string(final.Svc) != "null" {
		var err error
		if bill, err = decode[Bill](final.Svc); err != nil {
			return err
		}
	}
	bill.Settlement = final.Settlement
	bill.Usage = final.Usage
	s.bill = &bill
	return nil
}

func (s *Stream) finishAnswer() {
	s.answer.Text = s.text.String()
	s.answer.Message = Message{Role: "assistant", Content: s.answer.Text, ToolCalls: s.calls}
	if s.bill != nil {
		s.answer.Bill = *s.bill
		if s.bill.Usage != nil {
			s.answer.Usage = *s.bill.Usage
		}
	}
}

// errUnfinished is the error of a stream whose end was not read.
var errUnfinished = errors.New("purser: the stream has not ended: read all of its chunks")

// Bill returns what the call cost. It is known when all chunks have been read, also after most errors within a stream.
func (s *Stream) Bill() (Bill, error) {
	if s.bill == nil {
		return Bill{}, errUnfinished
	}
	return *s.bill, nil
}

// Answer returns the whole answer, when all chunks have been read. It has no Raw.
func (s *Stream) Answer() (Answer, error) {
	if s.answer.Message.Role == "" {
		return Answer{}, errUnfinished
	}
	return s.answer, nil
}

// RequestID names the call's receipt. It is "" before the first chunk.
func (s *Stream) RequestID() string { return s.answer.RequestID }
