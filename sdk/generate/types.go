package main

// An sdkType is a type of the SDKs for Go and Python.
type sdkType struct {
	schema  string   // of the API; or Schema.member for an object within one
	golang  string   // its name in Go; "" = raw JSON
	python  string   // its name in Python; "" = a mapping
	doc     string   // what it is, where the API does not say so; Go says "Name is" before it
	inner   bool     // always within another object, of which alone Go keeps the raw JSON
	sent    bool     // by the app
	without []string // members that the SDKs leave to the raw JSON
	absent  []string // members that are only in some answers of the type

	goExtra, pythonExtra string // members that the SDK adds
}

// types are in the order of the files.
var types = []sdkType{
	{schema: "Connection", golang: "ConnectionInfo", python: "ConnectionState"},
	{schema: "Freeze", golang: "Freeze", python: "Freeze", inner: true},
	{schema: "LedgerEntry", golang: "LedgerEntry", python: "LedgerEntry"},
	{schema: "AllocationRequest", golang: "AllocationRequest", python: "AllocationRequest"},
	{schema: "Revocation", golang: "Revocation", python: "Revocation"},
	{schema: "Hold", golang: "Hold", python: "Hold"},
	{schema: "Child", golang: "Child", python: "Child"},
	{schema: "ChildEvent.child", golang: "EndedChild", python: "EndedChild",
		doc: "A child at its end, in the event of it."},
	{schema: "Usage", golang: "Usage", inner: true,
		without: []string{"prompt_tokens_details", "completion_tokens_details"}},
	{schema: "Svc", golang: "Bill", python: "Bill",
		goExtra:     "// Usage is nil while it is not known.\nUsage *Usage `json:\"-\"`\n",
		pythonExtra: "    usage: Mapping[str, Any] | None = None\n"},
	{schema: "ReceiptCharge", python: "ReceiptCharge"},
	{schema: "ReceiptLine", golang: "ReceiptLine", inner: true},
	{schema: "ReceiptError", golang: "ReceiptError", python: "ReceiptError", inner: true},
	{schema: "Receipt", golang: "Receipt", python: "Receipt"},
	{schema: "EstimateCosts", golang: "EstimateCosts", python: "EstimateCosts", inner: true},
	{schema: "Estimate", golang: "Estimate", python: "Estimate"},
	{schema: "Model", golang: "Model", python: "Model"},
	{schema: "Model.capabilities", golang: "ModelCapabilities", inner: true, doc: "What a model can do."},
	{schema: "App", golang: "App", python: "App"},
	{schema: "App.suspension", golang: "Suspension", inner: true, doc: "Who suspended an app, and why."},
	{schema: "TierLimits", golang: "TierLimits", inner: true},
	{schema: "Feature", golang: "Feature", python: "Feature"},
	{schema: "NewFeature", golang: "NewFeature", sent: true},
	{schema: "NewWebhookSecret", golang: "Webhook", python: "WebhookEndpoint",
		doc: "An endpoint of an app that gets events.", absent: []string{"secret"}},
	{schema: "NewWebhook", golang: "NewWebhook", sent: true},
	{schema: "Delivery", golang: "Delivery", python: "Delivery"},
	{schema: "RecoveredDeliveries", golang: "Recovered", python: "Recovered"},
	{schema: "Event", golang: "Event", python: "EventFields"},
	{schema: "NewTestAccount", golang: "TestAccount", python: "TestAccount",
		doc: "A test account, whose money is fake.", absent: []string{"password"}},
	{schema: "DeviceAuthorization", golang: "DeviceCode", python: "DeviceAuthorization"},
	{schema: "ConnectionStreamEvent", golang: "LiveEvent", python: "LiveEvent",
		goExtra: "// ID is set for a charge or a refund: where another stream can go on.\nID string `json:\"-\"`\n",
		pythonExtra: "    event_id: str | None = None\n" +
			"    \"\"\"What to pass as ``after`` to go on from here.\"\"\"\n"},
}

// docs are of members that the API describes otherwise.
var docs = map[string]string{
	"ConnectionStreamEvent.type": "balance, hold, charge, refund, release or end. Ignore others.",
	"Svc.settlement": "`settled` by the provider's usage, `estimated` by the service's own count, or `pending`: the " +
		"charge is not known yet, and comes with the event `request.settled`.",
	"NewTestAccount.password": "Shown only to who creates the account.",
	"NewWebhookSecret.secret": "Shown only when the endpoint is made and when its secret is replaced: store it.",
}

// goTypes are the types of members that Go has otherwise: numbers that are 0 and not nil where there is none, texts
// where "" is something else than none, and types that are written by hand.
var goTypes = map[string]string{
	"App.developer_name":           "*string",
	"App.website_url":              "*string",
	"App.privacy_policy_url":       "*string",
	"App.support":                  "*string",
	"App.domain":                   "*string",
	"Child.depth":                  "int",
	"Delivery.attempts":            "int",
	"Delivery.response_status":     "int",
	"Estimate.max_tokens_applied":  "int64",
	"EstimateCosts.lines":          "[]ReceiptLine",
	"Event.data":                   "EventData",
	"LedgerEntry.hold_amount_mc":   "int64",
	"LedgerEntry.provider_cost_mc": "int64",
	"LedgerEntry.svc_fee_mc":       "int64",
	"LedgerEntry.dev_margin_mc":    "int64",
	"LedgerEntry.user_charge_mc":   "int64",
	"LedgerEntry.amount_mc":        "int64",
	"LedgerEntry.refunded_mc":      "int64",
	"Receipt.charge":               "*Bill",
	"Receipt.max_tokens_applied":   "int64",
	"ReceiptError.details":         "map[string]any",
	"ReceiptError.status":          "int",
}

// goNames are the names of members that Go has otherwise.
var goNames = map[string]string{"TestAccount.wac_id": "ID"}

// pythonTypes are the types of members that Python has otherwise.
var pythonTypes = map[string]string{
	"Bill.settlement":        "str",
	"Bill.paid_by":           "str | None",
	"Child.token":            "str | None = field(repr=False)",
	"LiveEvent.type":         "str",
	"TestAccount.password":   "str | None = field(repr=False)",
	"WebhookEndpoint.secret": "str | None = field(repr=False)",
}
