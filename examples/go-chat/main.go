// Command go-chat is a chat app with accounts. Each user pays for their own answers with Purser.
package main

import (
	"context"
	"embed"
	"errors"
	"html/template"
	"log"
	"net/http"
	"os"
	"time"

	purser "github.com/purserhq/purser/sdk/go"
)

//go:embed page.html style.css app.js
var files embed.FS

var page = template.Must(template.ParseFS(files, "page.html"))

func main() {
	if err := loadSettings(); err != nil {
		log.Fatal(err)
	}
	port := setting("PORT", "3000")
	users, err := openUsers(setting("DATA", "data"))
	if err != nil {
		log.Fatal(err)
	}
	a := &app{
		users:    users,
		sessions: sessions{all: map[string]*session{}},
		model:    setting("MODEL", "gpt-6-luna"),
		purser: purser.New(purser.Options{
			BaseURL:      setting("BASE_URL", "http://localhost:8080"),
			ClientID:     os.Getenv("CLIENT_ID"),
			ClientSecret: os.Getenv("CLIENT_SECRET"),
			RedirectURI:  setting("REDIRECT_URI", "http://localhost:"+port+"/callback"),
			Tokens:       purser.NewFileTokenStore(users.folder),
		}),
	}
	server := &http.Server{Addr: "localhost:" + port, Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second}
	log.Printf("Open http://%s", server.Addr)
	log.Fatal(server.ListenAndServe())
}

// An app is the whole program.
type app struct {
	purser   *purser.Client
	users    *users
	sessions sessions
	model    string
}

// handler returns all routes. Forms of other sites are refused.
func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /style.css", http.FileServerFS(files))
	mux.Handle("GET /app.js", http.FileServerFS(files))
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	mux.HandleFunc("GET /{$}", a.withSession(a.showPage))
	mux.HandleFunc("POST /sign-up", a.withSession(a.signUp))
	mux.HandleFunc("POST /sign-in", a.withSession(a.signIn))
	mux.HandleFunc("POST /sign-out", a.withSession(a.signOut))
	mux.HandleFunc("GET /connect", a.withSession(a.connect))
	mux.HandleFunc("GET /callback", a.withSession(a.finishConnect))
	mux.HandleFunc("POST /messages", a.withSession(a.answer))
	mux.HandleFunc("POST /disconnect", a.withSession(a.disconnect))
	secured := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
	return http.NewCrossOriginProtection().Handler(secured)
}

// A view is what the page shows.
type view struct {
	User      string
	Connected bool
	Left      string // what the connection can still spend
	Messages  []purser.Message
	Bill      string
	Notice    notice
}

// A notice tells the user something, with a link that helps.
type notice struct {
	Text string `json:"text"`
	URL  string `json:"url,omitempty"`
	Link string `json:"link,omitempty"`
}

func (a *app) showPage(w http.ResponseWriter, r *http.Request, s *session) {
	v := view{User: s.user, Notice: s.takeNotice()}
	u := a.users.get(s.user)
	if u.ConnectionID != "" {
		info, err := a.purser.Connection(u.ConnectionID).Get(r.Context())
		switch {
		case needsConnect(err) || err == nil && info.Status == "revoked":
			a.forget(s.user)
			v.Notice = notice{Text: "Your connection has ended. Connect again to go on."}
		case err != nil:
			v.Connected, v.Notice = true, explain(err)
		default:
			v.Connected, v.Left = true, info.AllocationRemainingDisplay
		}
	}
	v.Messages, v.Bill = s.conversation()
	if err := page.Execute(w, v); err != nil {
		log.Print(err)
	}
}

// connect sends the user to Purser. The attempt waits in the session.
func (a *app) connect(w http.ResponseWriter, r *http.Request, s *session) {
	if s.user == "" {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	attempt, err := a.purser.Connect.Start(r.Context(), purser.ConnectOptions{
		AllocationMC: 500_000_000, // $5.00; the user can change it
	})
	if err != nil {
		s.setNotice(explain(err))
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	s.setAttempt(attempt)
	http.Redirect(w, r, attempt.URL, http.StatusSeeOther)
}

// finishConnect takes the user back and stores the connection with the account.
func (a *app) finishConnect(w http.ResponseWriter, r *http.Request, s *session) {
	defer http.Redirect(w, r, "/", http.StatusSeeOther)
	if s.user == "" {
		return
	}
	connection, err := a.purser.Connect.Finish(r.Context(), r.URL.String(), s.takeAttempt())
	if err != nil {
		s.setNotice(explain(err))
		return
	}
	if err := a.users.setConnection(s.user, connection.ID()); err != nil {
		s.setNotice(explain(err))
	}
}

// disconnect ends the connection. What is left returns to the user's balance.
func (a *app) disconnect(w http.ResponseWriter, r *http.Request, s *session) {
	defer http.Redirect(w, r, "/", http.StatusSeeOther)
	u := a.users.get(s.user)
	if u.ConnectionID == "" {
		return
	}
	revocation, err := a.purser.Connection(u.ConnectionID).Revoke(r.Context())
	if err != nil && !needsConnect(err) {
		s.setNotice(explain(err))
		return
	}
	a.forget(s.user)
	s.setNotice(notice{Text: "Disconnected. " + revocation.ReleasedDisplay + " returned to your balance."})
}

// forget removes the connection of an account.
func (a *app) forget(user string) {
	if err := a.users.setConnection(user, ""); err != nil {
		log.Print(err)
	}
}

// needsConnect reports whether the tokens no longer work.
func needsConnect(err error) bool {
	var refused *purser.Error
	return errors.As(err, &refused) && refused.Action == purser.ActionConnectAgain
}

// explain says what the user can do about an error.
func explain(err error) notice {
	var refused *purser.Error
	switch {
	case errors.Is(err, context.Canceled):
		return notice{Text: "Stopped."}
	case !errors.As(err, &refused):
		log.Print(err)
		return notice{Text: "Something went wrong on our side."}
	}
	switch refused.Action {
	case purser.ActionRaiseCap:
		return notice{Text: "Your spend cap is too low for this answer.", URL: refused.IncreaseURL, Link: "Raise it"}
	case purser.ActionAskUser:
		if refused.ReviewURL != "" {
			return notice{Text: "Your connection is paused.", URL: refused.ReviewURL, Link: "Resume it"}
		}
		return notice{Text: "You declined. You won’t be charged."}
	case purser.ActionConnectAgain:
		return notice{Text: "Your connection has ended.", URL: "/connect", Link: "Connect again"}
	case purser.ActionWait, purser.ActionRetry:
		return notice{Text: "The service is busy. Try again in a moment. You were not charged."}
	}
	log.Print(refused)
	return notice{Text: "This does not work right now. You were not charged."}
}
