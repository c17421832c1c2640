package purser_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	purser "github.com/purserhq/purser/sdk/go"
)

// newClient returns a client with the settings of the environment.
func newClient() *purser.Client {
	return purser.New(purser.Options{
		BaseURL:      os.Getenv("BASE_URL"),
		ClientID:     os.Getenv("CLIENT_ID"),
		ClientSecret: os.Getenv("CLIENT_SECRET"),
		RedirectURI:  os.Getenv("REDIRECT_URI"),
		Tokens:       purser.NewFileTokenStore("tokens"),
	})
}

// Let a user connect in two handlers. The attempt is kept in the user's session between them.
func ExampleConnectService_Start() {
	client, sessions := newClient(), map[string]purser.Attempt{}
	http.HandleFunc("GET /connect", func(w http.ResponseWriter, r *http.Request) {
		attempt, err := client.Connect.Start(r.Context(), purser.ConnectOptions{
			AllocationMC: 500_000_000, // $5.00
			Features:     []string{"chat"},
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		sessions["the user's session"] = attempt
		http.Redirect(w, r, attempt.URL, http.StatusSeeOther)
	})
	http.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		connection, err := client.Connect.Finish(r.Context(), r.URL.String(), sessions["the user's session"])
		var refused *purser.Error
		switch {
		case errors.As(err, &refused) && refused.Code == "access_denied":
			fmt.Fprintln(w, "Maybe later.")
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		default:
			fmt.Fprintln(w, "Store this with your user:", connection.ID())
		}
	})
}

// Connect a command line. The app is a public client: it has no secret.
func ExampleDeviceService_Wait() {
	ctx := context.Background()
	client := purser.New(purser.Options{BaseURL: os.Getenv("BASE_URL"), ClientID: os.Getenv("CLIENT_ID")})
	device, err := client.Device.Start(ctx, purser.ConnectOptions{AllocationMC: 500_000_000})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Open", device.VerificationURI, "and enter", device.UserCode)
	connection, err := client.Device.Wait(ctx, device)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Connected:", connection.ID())
}

// Make a call and handle what can be refused.
func ExampleConnection_Call() {
	connection := newClient().Connection(os.Getenv("CONNECTION_ID"))
	answer, err := connection.Call(context.Background(), "gpt-6-luna", purser.ChatRequest{
		Messages:  []purser.Message{purser.UserMessage("Why is the sky blue?")},
		MaxTokens: 200,
		Feature:   "chat",
	})
	var refused *purser.Error
	if errors.As(err, &refused) {
		switch refused.Action {
		case purser.ActionRaiseCap:
			fmt.Println("Raise your cap:", refused.IncreaseURL)
		case purser.ActionAskUser:
			fmt.Println("Your connection is paused:", refused.ReviewURL)
		case purser.ActionConnectAgain:
			fmt.Println("Please connect again.")
		default:
			fmt.Println(refused)
		}
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text)
	fmt.Println(answer.Bill.UserChargeDisplay, "charged,", answer.Bill.AllocationRemainingDisplay, "left")
}

// Stream an answer.
func ExampleConnection_Stream() {
	connection := newClient().Connection(os.Getenv("CONNECTION_ID"))
	stream := connection.Stream(context.Background(), "gpt-6-luna", purser.ChatRequest{
		Messages: []purser.Message{purser.UserMessage("Why is the sky blue?")},
	})
	for chunk, err := range stream.Chunks() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(chunk.Text)
	}
	bill, err := stream.Bill()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("\nCharged:", bill.UserChargeDisplay)
}

// Show a user what a connection spends while it spends it.
func ExampleConnection_Events() {
	connection := newClient().Connection(os.Getenv("CONNECTION_ID"))
	for event, err := range connection.Events(context.Background(), "") {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case "balance":
			fmt.Println(event.Connection.AllocationRemainingDisplay, "left")
		case "charge":
			fmt.Println(event.Entry.UserChargeDisplay, "charged by", event.Entry.Model)
		}
	}
}

// Receive webhooks.
func ExampleVerifyWebhook() {
	http.HandleFunc("POST /webhooks", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		event, err := purser.VerifyWebhook(body, r.Header, os.Getenv("WEBHOOK_SECRET"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch event.Type {
		case purser.EventConnectionRevoked:
			fmt.Println("forget", event.ConnectionID)
		case purser.EventConnectionFrozen:
			fmt.Println("show", event.Data.ReviewURL)
		}
	})
}

// Read a list. It asks for its next page when it needs it.
func ExampleConnectionService_List() {
	for info, err := range newClient().Connections.List(context.Background(), purser.ListOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.ID, info.Status, info.AllocationRemainingDisplay)
	}
}

// Sign the requests of another library, such as OpenAI's.
func ExampleConnection_HTTPClient() {
	connection := newClient().Connection(os.Getenv("CONNECTION_ID"))
	// openai.NewClient(option.WithBaseURL(connection.OpenAIBaseURL()), option.WithHTTPClient(connection.HTTPClient()))
	response, err := connection.HTTPClient().Get(connection.OpenAIBaseURL() + "/models")
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
}
