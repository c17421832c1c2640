package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// step is how long the mail server may take for one answer.
const step = 30 * time.Second

// A Server is the mail server that takes our mail, and how it is spoken to. The
// zero Server stands for none.
type Server struct {
	Host           string
	Port           int
	User, Password string // "" = without
	ImplicitTLS    bool   // TLS from the first byte, instead of STARTTLS
	Unencrypted    bool   // no TLS, for a relay on the same machine or network
	From           netmail.Address

	roots *x509.CertPool // in tests
}

// String names the server and hides how to get in.
func (s Server) String() string {
	if s.Host == "" {
		return "no mail server"
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

var errURL = errors.New("must be smtp://HOST:PORT or smtps://HOST:PORT, with USER:PASSWORD@ before the host if it asks for them")

// SetURL reads how the server is reached: smtp:// is STARTTLS, smtps:// is TLS from
// the first byte. Errors repeat nothing of it.
func (s *Server) SetURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return errURL
	}
	s.Host, s.Port, s.ImplicitTLS = u.Hostname(), 587, u.Scheme == "smtps"
	if s.ImplicitTLS {
		s.Port = 465
	}
	if p := u.Port(); p != "" {
		if s.Port, err = strconv.Atoi(p); err != nil || s.Port < 1 || s.Port > 65535 {
			return errURL
		}
	}
	s.User = u.User.Username()
	s.Password, _ = u.User.Password()
	if (s.User == "") != (s.Password == "") || !oneLine(s.User) || !oneLine(s.Password) {
		return errURL
	}
	return nil
}

// SetFrom reads the sender, such as "Purser <no-reply@example.com>".
func (s *Server) SetFrom(text string) error {
	a, err := netmail.ParseAddress(text)
	if err != nil || !oneLine(a.Name) || strings.ContainsFunc(a.Address, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New(`must be an address such as Purser <no-reply@example.com>`)
	}
	s.From = *a
	return nil
}

// A failure is why a mail was not sent. Its text holds nothing that a server or a
// user wrote, so that it may be logged.
type failure struct {
	text        string
	final       bool // the address takes no mail: trying again changes nothing
	unreachable bool // no mail can be sent at present
}

func (f *failure) Error() string { return f.text }

// send hands the mail to the server. Errors are failures. Each mail has a
// connection of its own, so that none is lost with another's.
func (s Server) send(ctx context.Context, m Mail) error {
	message, err := s.compose(m)
	if err != nil {
		return &failure{text: err.Error(), final: true}
	}
	var conn net.Conn
	defer func() {
		if conn != nil { // go-mail leaves it open when the greeting fails
			_ = conn.Close() // what counts was answered before
		}
	}()
	client, err := s.client(func(c net.Conn) {
		conn = c
		context.AfterFunc(ctx, func() { _ = c.Close() }) // go-mail does not look at ctx once it is connected
	})
	if err != nil {
		return &failure{text: err.Error(), unreachable: true}
	}
	session, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return &failure{text: "connect: " + s.connectText(err), unreachable: true}
	}
	err = client.SendWithSMTPClient(session, message)
	if message.IsDelivered() { // whatever went wrong after the server took it
		_ = client.CloseWithSMTPClient(session)
		return nil
	}
	return refusal(err)
}

// client is go-mail's; opened is told its connection.
func (s Server) client(opened func(net.Conn)) (*gomail.Client, error) {
	config := &tls.Config{ServerName: s.Host, MinVersion: tls.VersionTLS12, RootCAs: s.roots}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: step}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if s.ImplicitTLS {
			c = tls.Client(c, config)
		}
		opened(c)
		return c, nil
	}
	policy := gomail.TLSMandatory
	if s.ImplicitTLS || s.Unencrypted { // the first has it already
		policy = gomail.NoTLS
	}
	options := []gomail.Option{gomail.WithPort(s.Port), gomail.WithTimeout(step), gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(config), gomail.WithDialContextFunc(dial)}
	if s.User != "" {
		// The last two send the password itself, and go-mail does that on an encrypted
		// connection only, or to the same machine.
		options = append(options, gomail.WithUsername(s.User), gomail.WithPassword(s.Password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	return gomail.NewClient(s.Host, options...)
}

// compose makes the same bytes each time: a mail that is sent again is the same mail.
func (s Server) compose(m Mail) (*gomail.Msg, error) {
	message := gomail.NewMsg(gomail.WithNoDefaultUserAgent(), gomail.WithBoundary("purser-"+m.ID))
	message.FromMailAddress(&s.From)
	if err := message.To(m.To); err != nil {
		return nil, errors.New("the address cannot be written to")
	}
	_, domain, _ := strings.Cut(s.From.Address, "@")
	message.SetMessageIDWithValue(m.ID + "@" + domain)
	message.SetDateWithValue(time.UnixMicro(m.CreatedUS).UTC())
	message.Subject(m.Subject)
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no answers from machines
	if m.Unsubscribe != "" {
		message.SetGenHeader(gomail.HeaderListUnsubscribe, "<"+m.Unsubscribe+">")
		message.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	message.SetBodyString(gomail.TypeTextPlain, m.Text)
	if m.HTML != "" {
		message.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	}
	return message, nil
}

// connectText tells why there is no session, without the words of the server: a
// careless one repeats what it was sent.
func (s Server) connectText(err error) string {
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return fmt.Sprintf("the server answered %d", answer.Code)
	}
	if s.Password == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), s.Password, "[hidden]")
}

// refusal tells why the server did not take a mail.
func refusal(err error) *failure {
	e, ok := errors.AsType[*gomail.SendError](err)
	if !ok {
		return &failure{text: "not taken", unreachable: true}
	}
	f := &failure{text: e.Reason.String(), unreachable: e.ErrorCode() == 0}
	if code := e.ErrorCode(); code != 0 {
		f.text += fmt.Sprintf(": the server answered %d %s", code, e.EnhancedStatusCode())
	}
	// These say that there is no such mailbox, unless they speak of policy (5.7.…),
	// which is between us and the server.
	f.final = e.Reason == gomail.ErrSMTPRcptTo && slices.Contains([]int{550, 551, 553}, e.ErrorCode()) && !strings.HasPrefix(e.EnhancedStatusCode(), "5.7.")
	return f
}
