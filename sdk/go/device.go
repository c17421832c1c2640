package purser

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"
)

// A DeviceService lets users connect a command line, an agent or a device without a browser (RFC 8628).
type DeviceService struct{ client *Client }

// Start asks for a code. Show UserCode and VerificationURI to the user, then call Wait.
func (s DeviceService) Start(ctx context.Context, o ConnectOptions) (DeviceCode, error) {
	form := url.Values{}
	o.setParameters(form)
	r := s.client.formRequest("/oauth/device_authorization", form)
	r.repeatable = true // an unused code expires
	answer, err := s.client.send(ctx, r)
	if err != nil {
		return DeviceCode{}, err
	}
	return decode[DeviceCode](answer.body)
}

const (
	defaultPollInterval = 5 * time.Second
	slowDownBy          = 5 * time.Second // RFC 8628 §3.5
	maxPollInterval     = 30 * time.Second
	defaultDeviceTTL    = 10 * time.Minute
)

// Wait polls until the user has decided, and saves the tokens. While the service can't be reached it polls on, more
// slowly. The error has the code access_denied if the user declined, and expired_token after ExpiresIn.
func (s DeviceService) Wait(ctx context.Context, device DeviceCode) (*Connection, error) {
	now := s.client.clock.now
	interval := cmp.Or(time.Duration(device.Interval)*time.Second, defaultPollInterval)
	end := now().Add(cmp.Or(time.Duration(device.ExpiresIn)*time.Second, defaultDeviceTTL))
	form := url.Values{
		"grant_type":  {"urn:ietf:params:oauth:grant-type:device_code"},
		"device_code": {device.DeviceCode},
	}
	key := newUUID() // one for all polls: tokens whose answer was lost come again
	for {
		connection, err := s.client.connect(ctx, form, key)
		if err == nil {
			return connection, nil
		}
		refused := asError(err)
		switch {
		case refused == nil:
			return nil, err
		case refused.Code == "slow_down":
			interval += slowDownBy
		case refused.Code == "authorization_pending":
		case !refused.isTemporary():
			return nil, err
		default:
			interval = min(2*interval, maxPollInterval)
		}
		left := end.Sub(now())
		if left <= 0 {
			return nil, newOwnError("expired_token", err, "the code has expired")
		}
		if err := s.client.clock.sleep(ctx, min(interval, left)); err != nil {
			return nil, err
		}
	}
}

// isTemporary reports whether the same request may be answered later, although it was not now.
func (e *Error) isTemporary() bool {
	return e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests ||
		e.Status == http.StatusRequestTimeout || e.Code == CodeConnectionError || e.Code == CodeInvalidResponse
}
