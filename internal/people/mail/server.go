package mail

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/purserhq/purser/internal/base/dial"
)

// Bounds of the SMTP dialogue. A server that has received a mail may scan it before it accepts it, and a client that
// leaves before sends it once more (RFC 5321 §4.5.3.2.6).
const (
	stepTimeout   = 30 * time.Second // of a step
	acceptTimeout = 10 * time.Minute // from the end of the mail's data to the answer
)

// A Server is the SMTP server that accepts our mail, and how to connect to it. The zero Server
// stands for none.
type Server struct {
	Host           string
	Port           int
	User, Password string // "" = no authentication
	ImplicitTLS    bool   // TLS from the first byte (port 465) instead of STARTTLS
	Unencrypted    bool   // no TLS, for a relay on the same host or network
	From           netmail.Address

	roots *x509.CertPool // for tests
	step  time.Duration  // in place of stepTimeout, for tests
}

// String returns host and port, without the credentials.
func (s Server) String() string {
	if s.Host == "" {
		return "no mail server"
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

var errServerURL = errors.New(
	"must be smtp://HOST:PORT or smtps://HOST:PORT, with USER:PASSWORD@ before the host if it asks for them")

// SetURL parses the URL of the server: smtp:// uses STARTTLS, smtps:// TLS from the first byte. The
// error does not contain the URL, which may hold a password.
func (s *Server) SetURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.RawQuery != "" ||
		u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return errServerURL
	}
	s.Host, s.Port, s.ImplicitTLS = u.Hostname(), 587, u.Scheme == "smtps"
	if s.ImplicitTLS {
		s.Port = 465
	}
	if p := u.Port(); p != "" {
		if s.Port, err = strconv.Atoi(p); err != nil || s.Port < 1 || s.Port > 65535 {
			return errServerURL
		}
	}
	s.User = u.User.Username()
	s.Password, _ = u.User.Password()
	if (s.User == "") != (s.Password == "") || !isOneLine(s.User) || !isOneLine(s.Password) {
		return errServerURL
	}
	return nil
}

// SetFrom parses the sender, such as "Purser <no-reply@example.com>".
func (s *Server) SetFrom(text string) error {
	a, err := netmail.ParseAddress(text)
	if err != nil || !isOneLine(a.Name) ||
		strings.ContainsFunc(a.Address, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New(`must be an address such as Purser <no-reply@example.com>`)
	}
	s.From = *a
	return nil
}

// A sendFailure is the reason why a mail was not sent. Its text contains nothing that a server or a
// user wrote, so that it may be logged.
type sendFailure struct {
	text        string
	permanent   bool // the mailbox does not exist: do not retry
	unreachable bool // the server accepts no mail at present
	bodyBegun   bool // the server may have the mail
}

func (f *sendFailure) Error() string { return f.text }

// send delivers the mail to the server over a new connection. All errors are *sendFailure.
func (s Server) send(ctx context.Context, m Mail) error {
	var conn *stepConn
	defer func() {
		if conn != nil { // go-mail leaves the connection open when the greeting fails
			_ = conn.Close() // the response was read before
		}
	}()
	message, err := s.compose(m, func() { conn.accepting, conn.bodyBegun = true, true })
	if err != nil {
		return &sendFailure{text: err.Error(), permanent: true}
	}
	client, err := s.newClient(func(c *stepConn) {
		conn = c
		context.AfterFunc(ctx, func() { _ = c.Close() }) // go-mail ignores ctx once connected
	})
	if err != nil {
		return &sendFailure{text: err.Error(), unreachable: true}
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return &sendFailure{text: "connect: " + s.describeConnectError(err), unreachable: true}
	}
	err = client.SendWithSMTPClient(session, message)
	if message.IsDelivered() { // errors after acceptance do not matter
		_ = client.CloseWithSMTPClient(session)
		return nil
	}
	f := classifyError(err)
	f.bodyBegun = conn != nil && conn.bodyBegun
	return f
}

// Check connects to the server, with TLS and authentication as for mail, and sends none. The error contains no
// credentials.
func (s Server) Check(ctx context.Context) error {
	var conn *stepConn
	defer func() {
		if conn != nil {
			_ = conn.Close() // the response was read before
		}
	}()
	client, err := s.newClient(func(c *stepConn) {
		conn = c
		context.AfterFunc(ctx, func() { _ = c.Close() }) // go-mail ignores ctx once connected
	})
	if err != nil {
		return err
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return errors.New(s.describeConnectError(err))
	}
	_ = client.CloseWithSMTPClient(session)
	return nil
}

// stepConn is a connection on which each step has a deadline of its own: go-mail knows one for all of them. One
// goroutine uses it.
type stepConn struct {
	net.Conn
	step      time.Duration
	accepting bool // the mail's data are sent, and the next answer accepts or refuses them
	bodyBegun bool
}

// SetDeadline does nothing: go-mail's is not of a step.
func (c *stepConn) SetDeadline(time.Time) error { return nil }

func (c *stepConn) Read(b []byte) (int, error) {
	timeout := c.step
	if c.accepting {
		timeout = acceptTimeout
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(timeout)) // a closed connection fails at the read
	n, err := c.Conn.Read(b)
	c.accepting = false
	return n, err
}

func (c *stepConn) Write(b []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.step))
	return c.Conn.Write(b)
}

// newClient returns a go-mail client; it passes its connection to opened.
func (s Server) newClient(opened func(*stepConn)) (*gomail.Client, error) {
	step := cmp.Or(s.step, stepTimeout)
	config := &tls.Config{ServerName: s.Host, MinVersion: tls.VersionTLS12, RootCAs: s.roots}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		tcp, err := dial.By(&net.Dialer{Timeout: step})(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &stepConn{Conn: tcp, step: step}
		opened(c)
		if s.ImplicitTLS {
			return tls.Client(c, config), nil
		}
		return c, nil
	}
	policy := gomail.TLSMandatory
	if s.ImplicitTLS || s.Unencrypted { // ImplicitTLS is encrypted already
		policy = gomail.NoTLS
	}
	options := []gomail.Option{gomail.WithPort(s.Port), gomail.WithTimeout(stepTimeout), gomail.WithTLSPolicy(policy),
		gomail.WithTLSConfig(config), gomail.WithDialContextFunc(dial)}
	if s.User != "" {
		// PLAIN and LOGIN send the password; go-mail uses them only on an encrypted connection or
		// to the same host.
		options = append(options, gomail.WithUsername(s.User), gomail.WithPassword(s.Password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	return gomail.NewClient(s.Host, options...)
}

// compose returns the message; it is identical for each attempt. It calls onBody while the message is sent.
func (s Server) compose(m Mail, onBody func()) (*gomail.Msg, error) {
	message := gomail.NewMsg(gomail.WithNoDefaultUserAgent(), gomail.WithBoundary("purser-"+m.ID))
	message.FromMailAddress(&s.From)
	if err := message.To(m.To); err != nil {
		return nil, errors.New("the address is not valid")
	}
	_, domain, _ := strings.Cut(s.From.Address, "@")
	message.SetMessageIDWithValue(m.ID + "@" + domain)
	message.SetDateWithValue(time.UnixMicro(m.CreatedUS).UTC())
	message.Subject(m.Subject)
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: suppress automatic replies
	if m.Unsubscribe != "" {
		message.SetGenHeader(gomail.HeaderListUnsubscribe, "<"+m.Unsubscribe+">")
		message.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	message.SetBodyWriter(gomail.TypeTextPlain, func(w io.Writer) (int64, error) {
		onBody()
		n, err := io.WriteString(w, m.Text)
		return int64(n), err
	})
	if m.HTML != "" {
		message.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	}
	return message, nil
}

// describeConnectError describes a connection error without the server's text, which may repeat our
// credentials.
func (s Server) describeConnectError(err error) string {
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return fmt.Sprintf("the server answered %d", answer.Code)
	}
	if s.Password == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), s.Password, "[hidden]")
}

// classifyError returns the failure of a mail that the server did not accept.
func classifyError(err error) *sendFailure {
	e, ok := errors.AsType[*gomail.SendError](err)
	if !ok {
		return &sendFailure{text: "not accepted", unreachable: true}
	}
	f := &sendFailure{text: e.Reason.String(), unreachable: e.ErrorCode() == 0}
	if code := e.ErrorCode(); code != 0 {
		f.text += fmt.Sprintf(": the server answered %d %s", code, e.EnhancedStatusCode())
	}
	// These codes mean that the mailbox does not exist, except 5.7.x, which is policy between us
	// and the server.
	f.permanent = e.Reason == gomail.ErrSMTPRcptTo && slices.Contains([]int{550, 551, 553}, e.ErrorCode()) &&
		!strings.HasPrefix(e.EnhancedStatusCode(), "5.7.")
	return f
}
