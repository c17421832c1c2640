package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/retry"
)

// loginTimeout bounds purser token and purser logout, with the wait for other processes.
const loginTimeout = time.Minute

type loginCmd struct {
	Server string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The service (default: ${default})."`
	Client string `required:"" placeholder:"ID" help:"The client_id of the app, a public client."`
}

// Help is shown by purser login --help.
func (loginCmd) Help() string {
	return "Connects an app on this machine to your balance. It prints a code and an address, and opens nothing: " +
		"open the address in a browser on any device, check the code, set a spend cap and approve. The tokens are " +
		"kept in a file that only you can read, in $XDG_CONFIG_HOME/purser or ~/.config/purser.\n\n" +
		"Example:\n  purser login --server https://purser.example.com --client cid_…"
}

// Run signs in by the device flow (RFC 8628).
func (c *loginCmd) Run(p *program) error {
	server, err := parseServer(c.Server)
	if err != nil {
		return exitError{fmt.Errorf("--server: %w", err), exitUsage}
	}
	logins, err := newLoginStore(p.environ)
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	oauth := newOAuthClient()
	service, err := oauth.discover(ctx, server)
	if err != nil {
		return err
	}
	started, err := oauth.startDevice(ctx, service, c.Client)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "Open %s in a browser on any device, and enter the code\n\n  %s\n\nOr open %s\n"+
		"Approve only if it shows the same code. Waiting …\n",
		started.VerificationURI, started.UserCode, started.VerificationURIComplete)
	tokens, err := oauth.awaitTokens(ctx, service, c.Client, started)
	if err != nil {
		return err
	}
	l := login{
		Server:             server,
		ClientID:           c.Client,
		TokenEndpoint:      service.TokenEndpoint,
		RevocationEndpoint: service.RevocationEndpoint,
	}
	l.setTokens(tokens)
	old, err := logins.replace(ctx, l)
	if err != nil {
		return err
	}
	if old.RefreshToken != "" { // a failure leaves tokens that are stored nowhere
		_ = oauth.revoke(ctx, old)
	}
	_, err = fmt.Fprintf(p.out, "Signed in. Get an access token:\n\n  purser token --server %s --client %s\n", server,
		c.Client)
	return err
}

// awaitTokens polls until the user has decided or the codes have expired. Each poll has the same
// Idempotency-Key, so that tokens whose response was lost come again.
func (o *oauthClient) awaitTokens(ctx context.Context, service service, clientID string,
	started deviceCodes) (tokens, error) {
	key, interval := id.NewUUID(), started.interval()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(started.ExpiresIn)*time.Second, errCodeExpired)
	defer cancel()
	for retry.Sleep(ctx, interval) {
		t, err := o.pollDevice(ctx, service, clientID, started.DeviceCode, key)
		refusal, refused := errors.AsType[oauthRefusal](err)
		switch {
		case err == nil:
			return t, nil
		case refused && refusal.code == "authorization_pending":
		case refused && refusal.code == "slow_down":
			interval += 5 * time.Second
		case refused && refusal.code == "access_denied":
			return tokens{}, errors.New("you denied the request; nothing was connected")
		case refused && refusal.code == "expired_token":
			return tokens{}, errCodeExpired
		case refused && !refusal.isTemporary():
			return tokens{}, err
		default: // it can't be reached now: poll less often (RFC 8628 §3.5)
			interval = min(2*interval, 30*time.Second)
		}
	}
	return tokens{}, context.Cause(ctx)
}

var errCodeExpired = errors.New("the code has expired; run purser login again")

// loginFlags choose a login.
type loginFlags struct {
	Server string `placeholder:"URL" help:"Address of the service (default: that of the only login)."`
	Client string `placeholder:"ID" help:"The app's client_id (default: that of the only login)."`
}

// use calls do with the login that the flags choose. The context ends after loginTimeout, or when the user interrupts.
func (f loginFlags) use(p *program, do func(ctx context.Context, logins loginStore, l login) error) error {
	logins, err := newLoginStore(p.environ)
	if err != nil {
		return exitError{err, exitUsage}
	}
	l, err := f.find(logins)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	return do(ctx, logins, l)
}

// find returns the login that the flags choose.
func (f loginFlags) find(logins loginStore) (login, error) {
	if f.Server != "" {
		server, err := parseServer(f.Server)
		if err != nil {
			return login{}, exitError{fmt.Errorf("--server: %w", err), exitUsage}
		}
		f.Server = server
	}
	list, err := logins.list()
	if err != nil {
		return login{}, err
	}
	var found []login
	for _, l := range list {
		if (f.Server == "" || l.Server == f.Server) && (f.Client == "" || l.ClientID == f.Client) {
			found = append(found, l)
		}
	}
	switch len(found) {
	case 0:
		return login{}, errSignedOut
	case 1:
		return found[0], nil
	}
	return login{}, exitError{errors.New("there are several logins; choose one by --server and --client"), exitUsage}
}

var errSignedOut = errors.New("not signed in; run purser login")

type tokenCmd struct{ loginFlags }

// Help is shown by purser token --help.
func (tokenCmd) Help() string {
	return "Prints an access token that is valid for at least two minutes, and nothing else. It refreshes the login " +
		"when that is needed. Any number of processes may run it at once: one of them refreshes, and the others wait " +
		"for it. Use it as the key helper of an agent.\n\n" +
		"Exits with 0 and the token, 1 when there is no login, when it has ended or when the service can’t be " +
		"reached, 2 for wrong usage.\n\n" +
		"Example:\n  curl -H \"Authorization: Bearer $(purser token)\" https://purser.example.com/v1/connection"
}

// Run prints an access token.
func (c *tokenCmd) Run(p *program) error {
	return c.use(p, func(ctx context.Context, logins loginStore, l login) (err error) {
		if !l.isFresh(time.Now()) {
			if l, err = logins.refresh(ctx, newOAuthClient(), l); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(p.out, l.AccessToken)
		return err
	})
}

type logoutCmd struct{ loginFlags }

// Help is shown by purser logout --help.
func (logoutCmd) Help() string {
	return "Revokes the tokens of a login and deletes them from this machine. The connection keeps its spend cap " +
		"until you revoke it on your dashboard.\n\nExample:\n  purser logout"
}

// Run revokes and deletes the tokens. They are deleted also when the service can't be reached.
func (c *logoutCmd) Run(p *program) error {
	return c.use(p, func(ctx context.Context, logins loginStore, l login) error {
		return logOut(ctx, p, logins, l)
	})
}

func logOut(ctx context.Context, p *program, logins loginStore, l login) error {
	unlock, err := logins.lock(ctx, l)
	if err != nil {
		return err
	}
	defer unlock()
	if l, err = logins.read(l.file()); errors.Is(err, os.ErrNotExist) {
		return errSignedOut
	} else if err != nil {
		return err
	}
	revokeErr := newOAuthClient().revoke(ctx, l)
	if err := logins.remove(l); err != nil {
		return errors.Join(err, revokeErr)
	}
	if revokeErr != nil {
		return fmt.Errorf(
			"the tokens are deleted here, but were not revoked; revoke the connection on your dashboard: %w",
			revokeErr)
	}
	_, err = fmt.Fprintln(p.out,
		"Signed out. The connection keeps its spend cap until you revoke it on your dashboard.")
	return err
}
