package console_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The portal shows attempts with what was answered, filters deliveries, sends samples, and recovers what failed once.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		hook := b.Post(w.mine("/webhooks"), url.Values{"url": {"https://hooks.example.com/"}}).Found(t,
			`webhooks/(whk_[0-9a-z]+)"`)
		path := w.mine("/webhooks/" + hook)
		b.Get(w.mine("/webhooks/events?endpoint="+hook)).Want(t, 200, "connection.frozen", "data.allocation_request",
			`<option value="`+hook+`" selected>`, "null in the sample")
		events, sample := w.mine("/webhooks/events"), url.Values{"endpoint": {"whk_none"}, "type": {"request.settled"}}
		b.Post(events, sample).Want(t, 404)
		b.Post(events, url.Values{"endpoint": {hook}, "type": {"none"}}).Want(t, 400)
		sample.Set("endpoint", hook)
		b.Post(events, sample).Leads(t,
			path+"?done=sent")
		delivery := b.Get(path).Want(t, 200, `hx-get="`+path+`?part=rows"`, "every 2s").Found(t,
			`deliveries/(whd_[0-9a-z]+)"`)
		at := path + "/deliveries/" + delivery
		b.Get(at).Want(t, 200, `hx-get="`+at+`/state"`, "None yet.")
		w.exec(`UPDATE deliveries SET status = 'failed', attempts = 7, next_us = NULL`)
		w.exec(`INSERT INTO delivery_attempts VALUES ($1, 1, 12, 500, 'answered 500', '<script>alert(1)</script>')`,
			delivery)
		w.exec(`INSERT INTO webhook_days (webhook_id, day, succeeded, failed) VALUES ($1, $2, 1, 2)`, hook,
			time.Now().UTC().Format("2006-01-02"))
		b.Get(at).Want(t, 200, "HTTP 500", "12 ms", "&lt;script&gt;alert(1)").Lacks(t, "hx-get", "<script>alert")
		b.Get(at+"/state").Want(t, 200, "HTTP 500").Lacks(t, "<html")
		b.Get(path+"?status=failed&type=request.settled").Want(t, 200, delivery, ">33%<",
			`id="row-`+delivery+`"`).Lacks(t, "every 2s")
		b.Get(path+"?status=delivered").Want(t, 200, "No deliveries fit these filters").Lacks(t, delivery)
		b.Get(path+"?part=rows&status=failed").Want(t, 200, delivery).Lacks(t, "<html")
		b.Get(at+"?part=drawer").Want(t, 200, "HTTP 500", "Redeliver", "Open delivery").Lacks(t, "<html",
			"<script>alert")
		for _, wrong := range []string{"status=x", "type=x", "range=x", "from=x", "find=whd_x", "find=x"} {
			b.Get(path+"?"+wrong).Want(t, 422, `class="error"`).Lacks(t, delivery)
		}
		event := b.Get(path).Found(t, `title="(evt_[0-9a-z]+)"`)
		b.Get(path+"?find="+delivery).Leads(t, at)
		b.Get(path+"?find=+"+event).Leads(t, at)
		b.Get(path+"/deliveries.csv?status=failed&range=24h").Want(t, 200, "id,created_at,event_id", delivery+",",
			","+event+",request.settled,failed,7,")
		b.Get(path+"/deliveries.csv?range=1h&to=2020-01-01").Want(t, 200, "id,created_at").Lacks(t, delivery)
		b.Get(path+"/deliveries.csv?status=x").Want(t, 400)
		b.Get(w.mine("/webhooks")).Want(t, 200, ">33%<")
		for _, since := range []string{"", "yesterday", time.Now().UTC().Add(time.Hour).Format("2006-01-02 15:04")} {
			b.Post(path+"/recover", url.Values{"since": {since}}).Want(t, 422, "Events since: enter a time")
		}
		hour := url.Values{"since": {time.Now().UTC().Add(-time.Hour).Format("2006-01-02 15:04")}}
		b.Post(path+"/recover", hour).Leads(t, path+"?done=recovered")
		b.Post(path+"/recover", hour).Leads(t, path+"?done=recovered-none") // pressed twice
		b.Get(path).Want(t, 200, "Pending")
		other := w.signedIn("other")
		foreign := "/developer/apps/" + w.foreign.ID + "/webhooks/" + hook
		other.Post(foreign+"/recover", hour).Want(t, 404)
		other.Get(foreign+"?part=rows").Want(t, 404)
		other.Get(foreign+"/deliveries.csv").Want(t, 404)
		other.Get(foreign+"/deliveries/"+delivery+"/state").Want(t, 404)
		other.Post("/developer/apps/"+w.foreign.ID+"/webhooks/events",
			url.Values{"endpoint": {hook}, "type": {"request.settled"}}).Want(t, 404)
	})
}
