package world

const (
	chatBody     = `{"model":"gpt-6-luna","max_tokens":30,"messages":[{"role":"user","content":"hello"}]}`
	promptBody   = `{"max_tokens":300,"messages":[{"role":"user","content":"hello"}]}`
	messageBody  = `{"model":"claude-haiku-4-5","max_tokens":30,"messages":[{"role":"user","content":"hello"}]}`
	responseBody = `{"model":"gpt-6-luna","max_output_tokens":30,"input":"hello","store":false}`
	contentsBody = `{"contents":[{"parts":[{"text":"hello"}]}],"generationConfig":{"maxOutputTokens":30}}`
	sdpOffer     = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=x-emulator:no-media\r\n" +
		"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"
)

// appScenarios are what apps, and their developers by the API, do.
var appScenarios = []scenario{
	{"calls in each shape", []row{
		{"token CALL /v1/chat/completions", chatBody, "request=@X-Request-Id"},
		{"token CALL /openai/v1/chat/completions", chatBody, ""},
		{"token CALL /v1/ai/gpt-6-luna", promptBody, ""},
		{"token CALL /v1/ai/gemini-3.5-flash", promptBody, ""},
		{"token CALL /v1/ai/claude-haiku-4-5", promptBody, ""},
		{"token CALL /openai/v1/responses", responseBody, ""},
		{"token CALL /openai/v1/embeddings", `{"model":"text-embedding-3-small","input":["hello"]}`, ""},
		{"token CALL /anthropic/v1/messages", messageBody, ""},
		{"key POST /anthropic/v1/messages/count_tokens", messageBody, ""},
		{"token CALL /google/v1beta/models/gemini-3.5-flash:generateContent", contentsBody, ""},
		{"token POST /google/v1/models/gpt-6-luna:countTokens", contentsBody, ""},
		{"token POST /v1/estimate", chatBody, ""},
		{"token GET /v1/requests/{request}", "", ""},
		{"app GET /v1/requests/{request}", "", ""},
		{"app POST /v1/requests/{request}/refund", `{"reason":"The answer was cut off."}`, ""},
		{"token GET /v1/connection/summary", "", ""},
		{"token GET /v1/connection", "", ""},
	}},
	{"streams", []row{
		{"token CALL /v1/chat/completions", streamed(chatBody), "request=@X-Request-Id"},
		{"token CALL /openai/v1/chat/completions", streamed(chatBody), ""},
		{"token CALL /openai/v1/responses", streamed(responseBody), ""},
		{"key CALL /anthropic/v1/messages", streamed(messageBody), ""},
		{"token CALL /google/v1beta/models/claude-haiku-4-5:streamGenerateContent?alt=sse", contentsBody, ""},
		{"token do watch", "", ""},
		{"token do leave", streamed(chatBody), ""},
	}},
	{"children", []row{
		{"token POST /v1/connection/children", `{"amount_mc":20000000,"expires_in":3600,"label":"Helper"}`,
			"childid=id child=token"},
		{"token GET /v1/connection/children", "", ""},
		{"child CALL /v1/chat/completions", chatBody, ""},
		{"child POST /v1/connection/children", `{"amount_mc":1000000}`, "grandchild=id"},
		{"token GET /v1/connection/children/{grandchild}", "", ""},
		{"token POST /v1/connection/children/{childid}/end", "", ""},
		{"child 403 POST /v1/chat/completions", chatBody, ""},
	}},
	{"own work", []row{
		{"app PATCH /v1/apps/{app}", `{"own_work":true,"dev_margin_rate":0.15}`, ""},
		{"{person} do connect", "{appname}", ""},
		{"token POST /v1/holds", `{"amount_mc":5000000,"description":"Search of 12 archives"}`, "hold=id"},
		{"app GET /v1/holds/{hold}", "", ""},
		{"app POST /v1/holds/{hold}/capture", `{"amount_mc":3500000}`, ""},
		{"token POST /v1/holds", `{"amount_mc":5000000,"description":"Another"}`, "hold=id"},
		{"token POST /v1/holds/{hold}/release", "", ""},
	}},
	{"voice", []row{
		{"token POST /v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini","max_duration_s":60,"instructions":` +
			`"!emu no_media turns=30"}`, "voice=id ticket=client.ticket"},
		{"nobody OPTIONS /v1/realtime/sessions/{voice}/offer", "", ""},
		{"ticket POST /v1/realtime/sessions/{voice}/offer", sdpOffer, ""},
		{"ticket 401 POST /v1/realtime/sessions/{voice}/offer", sdpOffer, ""},
		{"token do control", "{voice}", ""},
		{"token GET /v1/realtime/sessions", "", ""},
		{"token GET /v1/realtime/sessions/{voice}", "", ""},
		{"token POST /v1/realtime/sessions/{voice}/end", `{"when":"immediate"}`, ""},
		{"token POST /v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini"}`, "voice=id"}, // nobody comes
	}},
	{"mock voice", []row{
		{"sketch POST /v1/apps/{sketch}/test-accounts", "", "tester=wac_id"},
		{"dev do connect", "sketch", ""},
		{"token POST /v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini","max_duration_s":60}`,
			"voice=id ticket=client.ticket"},
		{"ticket do speak", "{voice}", ""},
		{"token POST /v1/realtime/sessions/{voice}/end", `{"when":"immediate"}`, ""},
		{"sketch POST /v1/apps/{sketch}/test-accounts/{tester}/fund", `{"amount_mc":5000000000}`, ""},
		{"sketch GET /v1/apps/{sketch}/test-accounts", "", ""},
		{"sketch DELETE /v1/apps/{sketch}/test-accounts/{tester}", "", ""},
	}},
	{"webhooks", []row{
		{"app POST /v1/apps/{app}/webhooks", `{"url":"https://app.example.com/in"}`, "hook=id"},
		{"app GET /v1/apps/{app}/webhooks", "", ""},
		{"app GET /v1/apps/{app}/webhooks/{hook}", "", ""},
		{"app POST /v1/apps/{app}/webhooks/{hook}/test", `{"type":"connection.revoked"}`, "delivery=id"},
		{"app POST /v1/apps/{app}/events", `{"type":"connection.frozen"}`, ""},
		{"nobody do sleep", "10s", ""},
		{"app GET /v1/apps/{app}/webhooks/{hook}/deliveries", "", ""},
		{"app POST /v1/apps/{app}/webhooks/{hook}/deliveries/{delivery}/redeliver", "", ""},
		{"app POST /v1/apps/{app}/webhooks/{hook}/recover", `{"since":"2026-11-01T00:00:00Z"}`, ""},
		{"app POST /v1/apps/{app}/webhooks/{hook}/rotate-secret", "", ""},
		{"app GET /v1/apps/{app}/events", "", ""},
		{"app PATCH /v1/apps/{app}/webhooks/{hook}", `{"status":"disabled"}`, ""},
		{"app DELETE /v1/apps/{app}/webhooks/{hook}", "", ""},
	}},
	{"an app and its features", []row{
		{"app GET /v1/account", "", ""},
		{"app GET /v1/apps/{app}", "", ""},
		{"app GET /v1/apps/{app}/requests", "", ""},
		{"app GET /v1/apps/{app}/usage", "", ""},
		{"app GET /v1/connections", "", ""},
		{"app POST /v1/apps/{app}/features", `{"slug":"sums-{n}","display_name":"Sums","description":"Sums up.",` +
			`"default_model":"gpt-6-luna","max_tokens":30}`, ""},
		{"app PATCH /v1/apps/{app}/features/sums-{n}", `{"max_cost_per_call_mc":50000000}`, ""},
		{"app GET /v1/apps/{app}/features", "", ""},
		{"token CALL /v1/ai/features/sums-{n}", promptBody, ""},
		{"sketch GET /v1/apps/{sketch}/go-live", "", ""},
		{"sketch PUT /v1/provider-keys/openai", `{"key":"emulated-key-of-a-developer"}`, ""},
		{"sketch GET /v1/provider-keys", "", ""},
		{"sketch DELETE /v1/provider-keys/openai", "", ""},
	}},
	{"a cap that is raised, and the end", []row{
		{"{person} do connect", "{appname}", ""},
		{"app GET /v1/connections/{conn}", "", ""},
		{"app POST /v1/connections/{conn}/allocation-requests",
			`{"target_allocation_mc":1500000000,"reason":"Your report has 40 more pages."}`, "wish=id"},
		{"app GET /v1/connections/{conn}/allocation-requests", "", ""},
		{"app GET /v1/connections/{conn}/allocation-requests/{wish}", "", ""},
		{"{person} form /allocation-requests/{wish}", "", ""},
		{"{person} form /connections/{conn}/increase", "spend_cap=12", ""},
		{"{person} form /connections/{conn} freeze", "", ""},
		{"token 403 POST /v1/chat/completions", chatBody, ""},
		{"{person} form /connections/{conn}/review", "", ""},
		{"nobody do refresh", "", ""},
		{"app POST /v1/connections/{conn}/revoke", "", ""},
		{"token 403 POST /v1/chat/completions", chatBody, ""},
	}},
	{"a device", []row{ // of a public client
		{"nobody POST /oauth/device_authorization", "client_id={publicid}",
			"device=device_code link=verification_uri_complete"},
		{"{person} form {link}", "decision=approve&spend_cap=5&amount=other", ""},
		{"nobody POST /oauth/token", "grant_type=urn:ietf:params:oauth:grant-type:device_code&device_code={device}&" +
			"client_id={publicid}", "token=access_token refresh=refresh_token"},
		{"token GET /v1/connection", "", ""},
		{"nobody POST /oauth/revoke", "token={refresh}&client_id={publicid}", ""},
		{"token 401 GET /v1/connection", "", ""},
	}},
	{"what everybody may read", []row{
		{"nobody GET /.well-known/oauth-authorization-server", "", ""},
		{"nobody GET /v1/models", "", ""},
		{"nobody GET /v1/log", "", ""},
		{"nobody GET /openai/v1/models", "", ""},
		{"nobody GET /openai/v1/models/gpt-6-luna", "", ""},
		{"nobody GET /anthropic/v1/models", "", ""},
		{"nobody GET /anthropic/v1/models/claude-haiku-4-5", "", ""},
		{"nobody GET /google/v1beta/models", "", ""},
		{"nobody GET /google/v1/models/gemini-3.5-flash", "", ""},
		{"nobody GET /openapi.yaml", "", ""},
		{"nobody GET /openapi.json", "", ""},
		{"nobody GET /llms.txt", "", ""},
		{"nobody GET /llms-full.txt", "", ""},
		{"nobody GET /healthz", "", ""},
		{"nobody GET /readyz", "", ""},
		{"nobody GET /status.json", "", ""},
	}},
}

// streamed returns the body of a call whose answer is a stream.
func streamed(body string) string { return `{"stream":true,` + body[1:] }
