package main

import (
	"encoding/json"
	"net/http"
	"strings"

	purser "github.com/purserhq/purser/sdk/go"
)

// An update is one line of a streamed answer. The page appends it.
type update struct {
	Text   string  `json:"text,omitempty"`
	Bill   string  `json:"bill,omitempty"`
	Left   string  `json:"left,omitempty"`
	Notice *notice `json:"notice,omitempty"`
}

const longestQuestion = 8000

// answer streams an answer to the page, as lines of JSON. Without JavaScript the page is shown again instead.
func (a *app) answer(w http.ResponseWriter, r *http.Request, s *session) {
	question := strings.TrimSpace(r.FormValue("message"))
	u := a.users.get(s.user)
	if u.ConnectionID == "" || question == "" || len(question) > longestQuestion {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	send := func(update) {}
	streams := r.Header.Get("Accept") == "application/x-ndjson"
	if streams {
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
		send = func(next update) {
			_ = lines.Encode(next) // a page that has gone ends the context of the call
			_ = flusher.Flush()
		}
	}
	s.add(purser.UserMessage(question))
	if said := a.stream(r, s, a.purser.Connection(u.ConnectionID), send); said != nil {
		s.dropLast()
		send(update{Notice: said})
		if !streams {
			s.setNotice(*said)
		}
	}
	if !streams {
		http.Redirect(w, r, "/", http.StatusSeeOther)
	}
}

// stream calls the model with the conversation. It returns what to tell the user if that fails.
func (a *app) stream(r *http.Request, s *session, connection *purser.Connection, send func(update)) *notice {
	messages, _ := s.conversation()
	stream := connection.Stream(r.Context(), a.model, purser.ChatRequest{
		Messages:  messages,
		MaxTokens: 1000,
		Feature:   "chat",
	})
	for chunk, err := range stream.Chunks() {
		if err != nil {
			said := explain(err)
			return &said
		}
		if chunk.Text != "" {
			send(update{Text: chunk.Text})
		}
	}
	answer, err := stream.Answer()
	if err != nil {
		said := explain(err)
		return &said
	}
	bill := answer.Bill.UserChargeDisplay + " charged"
	if answer.Bill.Settlement == "pending" {
		bill = "The charge follows"
	}
	s.add(answer.Message)
	s.setBill(bill)
	send(update{Bill: bill, Left: answer.Bill.AllocationRemainingDisplay})
	return nil
}
