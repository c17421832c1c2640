package mail

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	netmail "net/mail"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// The only credentials that the sink accepts.
const (
	sinkUser     = "mailer"
	sinkPassword = "correct-horse-battery"
)

// A sink is an SMTP server that records what it accepts. rcpt and data may return other responses.
type sink struct {
	mu    sync.Mutex
	got   []letter
	conns int
	rcpt  func(to string) error
	data  func(n int) error // n counts the complete mails, from 1
	auth  bool              // authentication is required
	sent  int
}

type letter struct {
	from, to string
	raw      string
}

func (k *sink) letters() []letter {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]letter(nil), k.got...)
}

// session is one connection to a sink.
type session struct {
	k      *sink
	letter letter
	in     bool
}

func (s *session) Reset()        { s.letter = letter{} }
func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.k.auth && !s.in {
		return smtp.ErrAuthRequired
	}
	s.letter.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.letter.to += to
	if s.k.rcpt != nil {
		return s.k.rcpt(to)
	}
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.k.sent++
	if s.k.data != nil {
		if err := s.k.data(s.k.sent); err != nil {
			return err
		}
	}
	s.letter.raw = string(raw)
	s.k.got = append(s.k.got, s.letter)
	return nil
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != sinkUser || password != sinkPassword {
			// repeats the password, as a careless server would
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no: " + password}
		}
		s.in = true
		return nil
	}), nil
}

// start serves the sink and returns its URL: STARTTLS, or TLS from the first byte if it has a
// certificate.
func (k *sink) start(t *testing.T, certificate *tls.Certificate, implicit bool) Server {
	t.Helper()
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.conns++
		return &session{k: k}, nil
	}))
	server.Domain, server.ErrorLog = "sink.example.com", log.New(io.Discard, "", 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Server{
		Host: "127.0.0.1",
		Port: l.Addr().(*net.TCPAddr).Port,
		From: netmail.Address{Name: "Purser", Address: "no-reply@example.com"},
	}
	if certificate == nil {
		s.Unencrypted, server.AllowInsecureAuth = true, true
	} else {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
		s.roots = x509.NewCertPool()
		s.roots.AddCert(certificate.Leaf)
	}
	if implicit {
		s.ImplicitTLS = true
		l = tls.NewListener(l, server.TLSConfig)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			t.Error(err)
		}
		_ = l.Close() // Serve may not have begun, and then Close knows of no listener
		<-served
	})
	return s
}

// certify creates a self-signed certificate for 127.0.0.1.
func certify(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "sink"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
