package purser

import (
	"context"
	"net/url"
	"time"
)

// A DeviceService lets users connect a command line, an agent or a device without a browser (RFC 8628).
type DeviceService struct{ client *Client }

// A DeviceCode is what a user types on another device. DeviceCode is secret.
type DeviceCode struct {
	Resource
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`                 // for the user to type
	VerificationURI         string `json:"verification_uri"`          // where to type it
	VerificationURIComplete string `json:"verification_uri_complete"` // the same page with the code filled in
	ExpiresIn               int64  `json:"expires_in"`                // seconds
	Interval                int64  `json:"interval"`                  // seconds between two polls
}

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
)

// Wait polls until the user has decided, and saves the tokens. The error has the code access_denied if the user
// declined, and expired_token after ExpiresIn.
func (s DeviceService) Wait(ctx context.Context, device DeviceCode) (*Connection, error) {
	interval := time.Duration(device.Interval) * time.Second
	if interval <= 0 {
		interval = defaultPollInterval
	}
	for {
		t, err := s.client.requestTokens(ctx, url.Values{
			"grant_type":  {"urn:ietf:params:oauth:grant-type:device_code"},
			"device_code": {device.DeviceCode},
		}, newUUID())
		if err == nil {
			return s.client.saveNewConnection(ctx, t)
		}
		refused := asError(err)
		switch {
		case refused == nil:
			return nil, err
		case refused.Code == "slow_down":
			interval += slowDownBy
		case refused.Code != "authorization_pending":
			return nil, err
		}
		if err := s.client.clock.sleep(ctx, interval); err != nil {
			return nil, err
		}
	}
}
