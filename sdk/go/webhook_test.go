package purser

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"testing"
	"time"
)

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdefghijklmnopqrstuvw")
	secret := "whsec_" + base64.StdEncoding.EncodeToString(key)
	body := []byte(`{"id":"evt_1","type":"connection.frozen","connection_id":null,"seq":3,` +
		`"data":{"connection":{"id":"conn_1","status":"frozen"},"review_url":"https://r.example"}}`)
	seconds := strconv.FormatInt(testTime.Unix(), 10)
	svc := "t=" + seconds + ",v1=" + hex.EncodeToString(sign([]byte(secret), seconds+".", body))
	standard := "v1," + base64.StdEncoding.EncodeToString(sign(key, "evt_1."+seconds+".", body))
	svcHeader := http.Header{"Svc-Signature": {svc}}
	standardHeader := http.Header{
		"Webhook-Id":        {"evt_1"},
		"Webhook-Timestamp": {seconds},
		"Webhook-Signature": {"v1a,other " + standard},
	}
	tests := map[string]struct {
		body    []byte
		header  http.Header
		secrets []string
		after   time.Duration
		ok      bool
	}{
		"signed":              {body, svcHeader, []string{secret}, 0, true},
		"signed by standard":  {body, standardHeader, []string{secret}, 0, true},
		"the second secret":   {body, svcHeader, []string{"whsec_new", secret}, 0, true},
		"still young":         {body, svcHeader, []string{secret}, 5 * time.Minute, true},
		"too old":             {body, svcHeader, []string{secret}, 5*time.Minute + 1, false},
		"too old by standard": {body, standardHeader, []string{secret}, 5*time.Minute + 1, false},
		"ahead of the clock":  {body, svcHeader, []string{secret}, -5*time.Minute - 1, false},
		"other body":          {append(body, ' '), svcHeader, []string{secret}, 0, false},
		"other secret":        {body, svcHeader, []string{"whsec_other"}, 0, false},
		"no secret":           {body, svcHeader, nil, 0, false},
		"empty secret": {body,
			http.Header{"Svc-Signature": {"t=" + seconds + ",v1=" + hex.EncodeToString(sign(nil, seconds+".", body))}},
			[]string{""}, 0, false},
		"empty secret in a list": {body, svcHeader, []string{"", secret}, 0, false},
		"prefix alone": {body, http.Header{"Svc-Signature": {
			"t=" + seconds + ",v1=" + hex.EncodeToString(sign([]byte("whsec_"), seconds+".", body))}},
			[]string{"whsec_"}, 0, false},
		"empty secret by standard": {body, http.Header{
			"Webhook-Id":        {"evt_1"},
			"Webhook-Timestamp": {seconds},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(sign(nil, "evt_1."+seconds+".", body))},
		}, []string{"whsec_", secret}, 0, false},
		"no signature": {body, http.Header{}, []string{secret}, 0, false},
		"malformed":    {body, http.Header{"Svc-Signature": {"v1=zz,t=x"}}, []string{secret}, 0, false},
		"standard without id": {body, http.Header{"Webhook-Timestamp": {seconds}, "Webhook-Signature": {standard}},
			[]string{secret}, 0, false},
		"standard, no key in it": {body, standardHeader, []string{"whsec_"}, 0, false},
	}
	for name, test := range tests {
		v := WebhookVerifier{Secrets: test.secrets, Now: func() time.Time { return testTime.Add(test.after) }}
		event, err := v.Verify(test.body, test.header)
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && asError(err).Code != CodeInvalidSignature {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (event.ID != "evt_1" || event.ConnectionID != "" || event.Data.Connection.Status != "frozen" ||
			event.Data.ReviewURL == "" || len(event.Raw) == 0) {
			t.Errorf("%s: %+v", name, event)
		}
	}
}
