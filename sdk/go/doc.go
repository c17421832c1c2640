// Package purser is the Go SDK of Purser, a billing gateway that lets the users of an app pay for its AI calls from
// their own balance.
//
// A [Client] holds the app's credentials. A [Connection] is what one user has allowed the app to spend:
//
//	client := purser.New(purser.Options{BaseURL: baseURL, ClientID: clientID, ClientSecret: clientSecret})
//	answer, err := client.Connection(connectionID).Call(ctx, "gpt-6-luna", purser.ChatRequest{
//		Messages: []purser.Message{purser.UserMessage("Why is the sky blue?")},
//	})
//	fmt.Println(answer.Text, answer.Bill.UserChargeDisplay)
//
// # Money
//
// A field whose name ends in MC is an integer of micro-cents of US dollars: 100,000,000 are $1.00. A field whose name
// ends in Display is the same amount as text, as the service sends it.
//
// # Errors
//
// What the service refuses is an [*Error]. Its Action says what to do:
//
//	var refused *purser.Error
//	if errors.As(err, &refused) && refused.Action == purser.ActionRaiseCap {
//		http.Redirect(w, r, refused.IncreaseURL, http.StatusSeeOther)
//	}
//
// # Retries and timeouts
//
// A request that failed on the network, or that the service says to repeat, is sent again up to Options.MaxRetries
// times, always with the same Idempotency-Key, so that no call is billed twice. A stream is only sent again before its
// first chunk. Contexts end everything. See Options.Timeout for the defaults.
//
// # Tokens
//
// A [TokenStore] keeps the tokens of each connection. A refresh token works once: the store's lock makes sure that one
// process at a time uses it. [NewFileTokenStore] shares the tokens between the processes of a machine; an app on
// several machines implements the interface by its database. The lock may be a transaction: a refresh saves its
// Idempotency-Key in one, and uses it in the next, so that a crash loses no tokens.
package purser
