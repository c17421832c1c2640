package main

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	purser "github.com/purserhq/purser/sdk/go"
)

// A user is an account of this app. It is not an account of Purser.
type user struct {
	Salt         []byte `json:"salt"`
	Password     []byte `json:"password"`      // PBKDF2
	ConnectionID string `json:"connection_id"` // "": not connected
}

// users are all accounts, by name. They are kept in a file.
type users struct {
	folder string

	mu  sync.Mutex
	all map[string]user
}

// openUsers reads the accounts of a folder.
func openUsers(folder string) (*users, error) {
	u := &users{folder: folder, all: map[string]user{}}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(u.file())
	if errors.Is(err, os.ErrNotExist) {
		return u, nil
	}
	if err != nil {
		return nil, err
	}
	return u, json.Unmarshal(text, &u.all)
}

func (u *users) file() string { return filepath.Join(u.folder, "users.json") }

// save writes the file. The caller has the lock.
func (u *users) save() error {
	text, err := json.MarshalIndent(u.all, "", "  ")
	if err != nil {
		return err
	}
	draft := u.file() + ".new"
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, u.file())
}

func (u *users) get(name string) user {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[name]
}

var errTaken = errors.New("the name is taken")

func (u *users) create(name, password string) error {
	salt := []byte(rand.Text())
	hash, err := hashPassword(password, salt)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.all[name]; taken {
		return errTaken
	}
	u.all[name] = user{Salt: salt, Password: hash}
	return u.save()
}

func (u *users) setConnection(name, connectionID string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	changed, known := u.all[name]
	if !known {
		return nil
	}
	changed.ConnectionID = connectionID
	u.all[name] = changed
	return u.save()
}

// isPassword reports whether a password is that of an account. An unknown name takes as long as a wrong password.
func (u *users) isPassword(name, password string) bool {
	known := u.get(name)
	hash, err := hashPassword(password, known.Salt)
	return err == nil && len(known.Password) > 0 && subtle.ConstantTimeCompare(hash, known.Password) == 1
}

func hashPassword(password string, salt []byte) ([]byte, error) {
	return pbkdf2.Key(sha256.New, password, salt, 600_000, 32)
}

// A session is one browser. It lives as long as the process.
type session struct {
	user string // "": not signed in

	mu       sync.Mutex
	attempt  purser.Attempt
	messages []purser.Message
	bill     string
	notice   notice
}

// sessions are all sessions, by the value of their cookie.
type sessions struct {
	mu  sync.Mutex
	all map[string]*session
}

// get returns the session of a browser, or a new one that is not kept.
func (s *sessions) get(r *http.Request) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cookie, err := r.Cookie(cookieName); err == nil && s.all[cookie.Value] != nil {
		return s.all[cookie.Value]
	}
	return &session{}
}

// begin keeps a session under a new cookie, so that no one else can know it.
func (s *sessions) begin(w http.ResponseWriter, next *session) {
	id := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[id] = next
	http.SetCookie(w, &http.Cookie{
		Name:     cookieName,
		Value:    id,
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // the callback comes from another site; add Secure behind HTTPS
	})
}

// end forgets the session of a browser.
func (s *sessions) end(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cookie, err := r.Cookie(cookieName); err == nil {
		delete(s.all, cookie.Value)
	}
}

const cookieName = "chat_session" // the cookies of localhost are shared by all ports

// withSession calls a handler with the session of the browser.
func (a *app) withSession(handle func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		handle(w, r, a.sessions.get(r))
	}
}

func (a *app) signUp(w http.ResponseWriter, r *http.Request, _ *session) {
	name, password := strings.TrimSpace(r.FormValue("name")), r.FormValue("password")
	err := errors.New("choose a name, and a password of at least 8 characters")
	if name != "" && len(name) <= 80 && len(password) >= 8 {
		err = a.users.create(name, password)
	}
	next := &session{user: name}
	if err != nil {
		next = &session{notice: notice{Text: "Not created: " + err.Error() + "."}}
	}
	a.sessions.begin(w, next)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (a *app) signIn(w http.ResponseWriter, r *http.Request, _ *session) {
	name := strings.TrimSpace(r.FormValue("name"))
	next := &session{user: name}
	if !a.users.isPassword(name, r.FormValue("password")) {
		next = &session{notice: notice{Text: "Incorrect name or password."}}
	}
	a.sessions.begin(w, next)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (a *app) signOut(w http.ResponseWriter, r *http.Request, _ *session) {
	a.sessions.end(r)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *session) setNotice(n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = n
}

func (s *session) takeNotice() notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notice
	s.notice = notice{}
	return n
}

func (s *session) setAttempt(attempt purser.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = attempt
}

// takeAttempt returns the attempt to connect. It works once.
func (s *session) takeAttempt() purser.Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	attempt := s.attempt
	s.attempt = purser.Attempt{}
	return attempt
}

func (s *session) add(m purser.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, m)
}

// dropLast removes the last message.
func (s *session) dropLast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = s.messages[:max(0, len(s.messages)-1)]
}

func (s *session) setBill(bill string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bill = bill
}

// conversation returns the messages, and what the last answer cost.
func (s *session) conversation() ([]purser.Message, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]purser.Message(nil), s.messages...), s.bill
}
