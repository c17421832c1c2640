// Command go-cli asks a model a question. Its user pays, from their own balance.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	purser "github.com/purserhq/purser/sdk/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, explain(err))
		os.Exit(1)
	}
}

// A terminal is one user's sign-in and conversation.
type terminal struct {
	client *purser.Client
	folder string // of the tokens, and of the name of the connection
	model  string
}

// run answers the question of the arguments, or those of the standard input, line by line.
func run(ctx context.Context, args []string) error {
	if err := loadSettings(); err != nil {
		return err
	}
	t := terminal{folder: setting("TOKENS", "tokens"), model: setting("MODEL", "gpt-6-luna")}
	t.client = purser.New(purser.Options{
		BaseURL:  setting("BASE_URL", "http://localhost:8080"),
		ClientID: os.Getenv("CLIENT_ID"), // a public client: a program that users download can keep no secret
		Tokens:   purser.NewFileTokenStore(t.folder),
	})
	if len(args) == 1 && args[0] == "sign-out" {
		return t.signOut(ctx)
	}
	connection, err := t.connect(ctx)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		return t.ask(ctx, connection, nil, strings.Join(args, " "))
	}
	return t.converse(ctx, connection)
}

// file is where the id of the connection is.
func (t terminal) file() string { return filepath.Join(t.folder, "connection") }

// connect returns the user's connection. The first time it shows a code, which the user enters in a browser.
func (t terminal) connect(ctx context.Context) (*purser.Connection, error) {
	if id, err := os.ReadFile(t.file()); err == nil {
		return t.client.Connection(strings.TrimSpace(string(id))), nil
	}
	device, err := t.client.Device.Start(ctx, purser.ConnectOptions{AllocationMC: 500_000_000}) // $5.00
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "Open %s and check the code %s\n", device.VerificationURIComplete, device.UserCode)
	connection, err := t.client.Device.Wait(ctx, device)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "Connected.")
	return connection, os.WriteFile(t.file(), []byte(connection.ID()+"\n"), 0o600)
}

// signOut ends the tokens on this machine.
func (t terminal) signOut(ctx context.Context) error {
	connection, err := t.connect(ctx)
	if err != nil {
		return err
	}
	if err := connection.SignOut(ctx); err != nil {
		return err
	}
	return os.Remove(t.file())
}

// converse asks each line of the standard input, with all that was said before.
func (t terminal) converse(ctx context.Context, connection *purser.Connection) error {
	var history []purser.Message
	lines := bufio.NewScanner(os.Stdin)
	for fmt.Fprint(os.Stderr, "> "); lines.Scan(); fmt.Fprint(os.Stderr, "> ") {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := t.ask(ctx, connection, &history, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// ask streams the answer to a question, then prints the bill.
func (t terminal) ask(ctx context.Context, connection *purser.Connection, history *[]purser.Message,
	question string) error {
	messages := []purser.Message{purser.UserMessage(question)}
	if history != nil {
		messages = append(*history, messages...)
	}
	stream := connection.Stream(ctx, t.model, purser.ChatRequest{Messages: messages, MaxTokens: 1000})
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return err
		}
		fmt.Print(chunk.Text)
	}
	fmt.Println()
	answer, err := stream.Answer()
	if err != nil {
		return err
	}
	if history != nil {
		*history = append(messages, answer.Message)
	}
	fmt.Fprintf(os.Stderr, "%s charged, %s left\n", answer.Bill.UserChargeDisplay,
		answer.Bill.AllocationRemainingDisplay)
	return nil
}

// explain says what the user can do about an error.
func explain(err error) string {
	var refused *purser.Error
	if !errors.As(err, &refused) {
		return err.Error()
	}
	switch refused.Action {
	case purser.ActionRaiseCap:
		return "Your spend cap is too low. Raise it: " + refused.IncreaseURL
	case purser.ActionAskUser:
		if refused.ReviewURL != "" {
			return "Your connection is paused. Resume it: " + refused.ReviewURL
		}
		return "You declined. You won't be charged."
	case purser.ActionConnectAgain:
		return "You are signed out. Delete the folder of the tokens and start again."
	}
	return refused.Error()
}
