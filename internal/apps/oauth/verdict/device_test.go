package verdict

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// Table of what becomes of a poll: RFC 8628 §3.5; decision 068.
func TestPollVerdicts(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second / time.Microsecond)
	decided, used, polled := 50*second, 100*second, 145*second
	fresh := DeviceCode{AppID: "app_1", ExpiresUS: 200 * second, IntervalUS: 5 * second}
	with := func(change func(*DeviceCode)) DeviceCode { c := fresh; change(&c); return c }
	denied := with(func(c *DeviceCode) { c.DecidedUS = &decided })
	approved := with(func(c *DeviceCode) { c.DecidedUS, c.AccountID = &decided, "wac_1" })
	spent := with(func(c *DeviceCode) { c.DecidedUS, c.AccountID, c.UsedUS = &decided, "wac_1", &used })
	asked := with(func(c *DeviceCode) { c.PolledUS = &polled })
	for _, c := range []struct {
		what         string
		code         DeviceCode
		app          string
		arrived, now int64
		want         Verdict
		reason       Reason
	}{
		{"the first poll", fresh, "app_1", 150 * second, 150 * second, Wait, ""},
		{"at its last moment", fresh, "app_1", 199 * second, 200*second - 1, Wait, ""},
		{"expired", fresh, "app_1", 200 * second, 200 * second, Reject, Expired},
		{"another app", fresh, "app_2", 150 * second, 150 * second, Reject, Unknown},
		{"another app, expired", fresh, "app_2", 200 * second, 200 * second, Reject, Unknown},
		{"after the interval", asked, "app_1", 150 * second, 150 * second, Wait, ""},
		{"a second early", asked, "app_1", 149 * second, 149 * second, Wait, ""},
		{"too early", asked, "app_1", 149*second - 1, 149*second - 1, SlowDown, ""},
		{"immediately", asked, "app_1", polled, polled, SlowDown, ""},
		{"denied", denied, "app_1", 150 * second, 150 * second, Reject, AccessDenied},
		{"denied and expired", denied, "app_1", 300 * second, 300 * second, Reject, AccessDenied},
		{"approved", approved, "app_1", 150 * second, 150 * second, Accept, ""},
		{"approved, expired", approved, "app_1", 200 * second, 200 * second, Reject, Expired},
		{"approved, another app", approved, "app_2", 150 * second, 150 * second, Reject, Unknown},
		{"used", spent, "app_1", 101 * second, 150 * second, RevokeFamily, Used},
		{"used, after its end", spent, "app_1", 300 * second, 300 * second, RevokeFamily, Used},
		{"used while on its way", spent, "app_1", 100 * second, 150 * second, Reject, Used},
		{"used, by another app", spent, "app_2", 150 * second, 150 * second, Reject, Unknown},
	} {
		if got, reason := c.code.JudgePoll(c.app, c.arrived, c.now); got != c.want || reason != c.reason {
			t.Errorf("%s: verdict %d %q, want %d %q", c.what, got, reason, c.want, c.reason)
		}
	}
	soon := approved
	soon.PolledUS = &polled
	if got, _ := soon.JudgePoll("app_1", polled, polled); got != Accept {
		t.Errorf("approved, polled too early: verdict %d", got)
	}
	interval := fresh
	for range 20 {
		interval.IntervalUS = interval.NextInterval(SlowDown)
	}
	if fresh.NextInterval(SlowDown) != 10*second || fresh.NextInterval(Wait) != 5*second ||
		interval.IntervalUS != 60*second {
		t.Errorf("intervals: %d, %d, %d", fresh.NextInterval(SlowDown), fresh.NextInterval(Wait), interval.IntervalUS)
	}
	if !fresh.Open(199*second) || fresh.Open(200*second) || denied.Open(60*second) || approved.Open(60*second) {
		t.Error("the wrong codes can be decided")
	}
}

func TestUserCodes(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"WDJB-MJHT": "WDJBMJHT", "wdjbmjht": "WDJBMJHT", " wdjb mjht ": "WDJBMJHT", "w-d-j-b-m-j-h-t": "WDJBMJHT",
		"WDJB\u2011MJHT": "WDJBMJHT", "WDJB\u2013MJHT": "WDJBMJHT",
		"": "", "WDJB-MJH": "", "WDJB-MJHTT": "", "WDJB-MJHA": "", "WDJB-MJH0": "", "WDJB_MJHT": "", "WDJB\nMJHT": "",
		"wdjb-mjhſ": "", strings.Repeat("-", 93) + "WDJBMJHT": "",
		strings.Repeat("-", 92) + "WDJBMJHT": "WDJBMJHT", "zzzz-zzzz": "ZZZZZZZZ", "bbbb-bbbb": "BBBBBBBB",
	} {
		if got, ok := ReadUserCode(typed); ok != (want != "") || ok && got != want {
			t.Errorf("ReadUserCode(%q) = %q, %t", typed, got, ok)
		}
	}
	if got := FormatUserCode("WDJBMJHT"); got != "WDJB-MJHT" {
		t.Errorf("formatted: %q", got)
	}
}

func TestProposals(t *testing.T) {
	t.Parallel()
	amount, features, problem := ReadProposal(url.Values{"requested_allocation_mc": {"5"}, "features": {"a,b"}})
	if amount != 5 || len(features) != 2 || problem != "" {
		t.Errorf("%d %v %q", amount, features, problem)
	}
	if _, _, problem := ReadProposal(url.Values{"requested_allocation_mc": {"-5"}}); problem == "" {
		t.Error("a negative amount is no problem")
	}
}
