package ui

import (
	"html/template"
	"strings"
)

// A Console is what every page of the developer console has: whose it is, the app
// that it is about, and how the last form fared.
type Console struct {
	Shell
	Heading string
	App     *ConsoleApp  // nil = the page is about no single app
	Others  []ConsoleApp // of the account, to switch to
	Tabs    []Tab
	Done    string // what was just done; "" = nothing
	Errors  []Problem
	Only    string // who can change what the page shows, so that it has no forms; "" = the account can
}

// A ConsoleApp heads the pages of one app.
type ConsoleApp struct {
	ID, Name string
	Logo     string // its address; "" = none
	Tier     string
	Mode     string
	Off      string // why its calls are refused; "" = they are not
}

func (c Console) title() string {
	if c.App != nil {
		return c.Heading + " · " + c.App.Name
	}
	return c.Heading
}

func (Console) formAction() string { return "" }

func (c Console) shell() Shell {
	s := c.Shell
	s.app, s.others, s.pages = c.App, c.Others, c.Tabs
	return s
}

// A Field is one labelled field of a form.
type Field struct {
	ID, Label, Hint string
	Value           string
	Kind            string // "" = one line; area, date, dollars, number, password, select, url
	Options         []Option
	Error           string
}

// Described returns the ids of the elements that describe the field.
func (f Field) Described() string {
	var ids []string
	if f.Error != "" {
		ids = append(ids, f.ID+"-error")
	}
	if f.Hint != "" {
		ids = append(ids, f.ID+"-hint")
	}
	return strings.Join(ids, " ")
}

// An Option is one choice of a select, or one box to tick.
type Option struct {
	ID, Text, Detail string
	Chosen           bool
}

// A Fact is a name with what it stands for.
type Fact struct{ Name, Value string }

// Code is a piece of code in one language.
type Code struct{ Language, Text string }

// A Sum is a line of figures about calls.
type Sum struct {
	Name, Detail          string
	Calls, Input, Output  string
	Revenue, Cost, Margin string
	Cached, Saved         string // of the provider's cache; "" = not used
}

// Sums is a table of figures about calls.
type Sums struct {
	Caption, Of string // what a line stands for
	List        []Sum
	HasCached   bool // a line used the provider's cache
}

// Developer is the front page of the console.
type Developer struct {
	Console
	Apps []AppLine
}

// AppLine is one app of Developer.
type AppLine struct {
	ConsoleApp
	Sum
	Role string  // of the account in the app
	Days []int64 // what users spent, by day, the oldest first, in micro-cents
}

// Spark draws the days.
func (a AppLine) Spark() template.HTML { return Sparkline(a.Days) }

// State says whether the app is in the sandbox, live or disabled.
func (c ConsoleApp) State() string {
	switch {
	case c.Off != "":
		return "Disabled"
	case c.Tier == "sandbox":
		return "Sandbox"
	}
	return "Live"
}

func (Developer) name() string { return "developer/apps" }

// Enable offers to enable developer tools.
type Enable struct {
	Console
	TestAccount bool // which never becomes one
}

func (Enable) name() string { return "developer/enable" }

// Forbidden says that a page of an app needs another role than the account's.
type Forbidden struct {
	Console
	Text string
	Back Link
}

func (Forbidden) name() string { return "developer/forbidden" }

// FormPage is a page that is one form.
type FormPage struct {
	Console
	Lead, Action, Button string
	Fields               []Field
	Shown                Shown
	Back                 Link
}

func (FormPage) name() string { return "developer/form" }

// Secret shows what is shown only once.
type Secret struct {
	Console
	Lead  string
	Facts []Fact
	Next  Link
}

func (Secret) name() string { return "developer/secret" }

// Confirm asks once more before an action that destroys something (decision 057).
type Confirm struct {
	Console
	Lead     string
	Facts    []Fact
	Action   string   // address that the form posts to
	Value    Fact     // a hidden field; without a name there is none
	Legend   string   // of the choices
	Choices  []Choice // of the field "when"
	Password bool     // ask for the account's password
	Button   string
	Back     Link
}

func (Confirm) name() string { return "developer/confirm" }

// ErrorOf returns the problem of a field, or "".
func (c Confirm) ErrorOf(field string) string { return errorOf(c.Errors, field) }

// AppOverview is the first page of an app.
type AppOverview struct {
	Console
	Steps          []Task // to a live app; nil = all are done
	StepsDone      int
	Called         bool // a call was billed
	Tiles          []Figure
	Facts          []Fact
	ByDay          Daily
	Top            []TopConnection
	Failures       []FailedCall
	Now            Now
	Sessions       []VoiceSession
	Connect        string // an authorize address to adapt
	Exchange, Call []Code
}

// A TopConnection is what a connection spent, or what all the others did.
type TopConnection struct {
	ID, Href string
	Others   string // how many they are; "" = this is one connection
	Calls    string
	Spent    Amount
}

// Short returns the end of the id.
func (c TopConnection) Short() string { return "…" + c.ID[max(len(c.ID)-6, 0):] }

// A FailedCall is a call that was refused or failed.
type FailedCall struct {
	Code, Status, Model string
	Failed              bool   // by the service or a provider; false = refused
	When, Shown         string // RFC 3339, and in UTC
	Href                string // the call
	Similar             string // the request log with calls like it
}

// Now is what an app's users spend at this moment.
type Now struct {
	Held        Amount // for calls in flight
	Connections int64  // that have some
	Today       Amount // UTC
	Calls       string // billed today
}

func (AppOverview) name() string { return "developer/app" }
func (AppOverview) live() bool   { return true }

// AppSettings is the page of what a developer may change of an app.
type AppSettings struct {
	Console
	Fields  []Field
	Models  []ModelGroup
	Shown   Shown // of Fields and Models
	Profile []Field

	ProfileShown Shown

	Domain     Domain
	LogoError  string // why a file did not become the logo
	ClientID   string
	Runs       string // where the app runs
	Created    string
	OldSecret  string // until when the secret before the present one works; "" = there is none
	Off        bool   // by the developer
	Suspension string // by the service; "" = none
	InReview   string // what waits for a review; "" = nothing
	OnlySecret string // who can replace the secret and change Runs; "" = the account can
	OnlySwitch string // who can disable the app; "" = the account can
}

// A Domain is the domain of an app, with how to verify it.
type Domain struct {
	Name     string // "" = none
	Record   string // TXT record
	File     string // URL of the file, which has AppID as a line
	AppID    string
	Verified string // since when; "" = it is not
}

// ModelGroup is the models of one provider, to tick.
type ModelGroup struct {
	Provider string
	Models   []Option
}

func (AppSettings) name() string { return "developer/settings" }

// FeatureList is the features of an app, and a form for another.
type FeatureList struct {
	Console
	List   []FeatureLine
	Fields []Field
}

// FeatureLine is one feature of FeatureList.
type FeatureLine struct{ Slug, Name, Description, Rules string }

func (FeatureList) name() string { return "developer/features" }

// TestAccounts are those of a developer.
type TestAccounts struct {
	Console
	List []TestAccount
	Most int
}

// TestAccount is one line of TestAccounts.
type TestAccount struct{ ID, Email, Tester, Available, Reserved, Created string }

func (TestAccounts) name() string { return "developer/test-accounts" }

// ProviderKeys are the developer's own keys at providers.
type ProviderKeys struct {
	Console
	List   []ProviderKey
	Fields []Field
}

// ProviderKey is one line of ProviderKeys.
type ProviderKey struct{ Provider, Name, Last4, Tested string }

func (ProviderKeys) name() string { return "developer/provider-keys" }

// EndpointList are the webhook endpoints of an app, and a form for another.
type EndpointList struct {
	Console
	List   []Endpoint
	Fields []Field
	Events []Option
}

// Endpoint is a webhook endpoint.
type Endpoint struct {
	ID, URL, Events, Status, Created string
	Rate                             string // share of successful attempts of the days; "" = there were none
	Days                             []EndpointDay
}

// EndpointDay is a bar: the attempts of one day. The heights are parts of a hundred, and sum to at most that.
type EndpointDay struct {
	Label             string // for the title
	X, Good, Bad      int
	GoodY, BadY       int
	Succeeded, Failed string
}

func (EndpointList) name() string { return "developer/endpoints" }

// EndpointPage is one webhook endpoint with its history.
type EndpointPage struct {
	Console
	Endpoint
	Fields  []Field
	Choices []Option // of events
	Shown   Shown
	Table   List  // the deliveries
	Since   Field // of the form that recovers deliveries
}

// Delivery is one delivery of an event.
type Delivery struct {
	ID, Type, Status, Attempts, Answer string
	At                                 string // RFC 3339
	Created, Next                      string
}

func (EndpointPage) name() string      { return "developer/endpoint" }
func (EndpointPage) live() bool        { return true }
func (EndpointPage) scripts() []string { return []string{"table"} }

// DeliveryPage shows what a delivery carries, and its attempts.
type DeliveryPage struct {
	Console
	Endpoint Endpoint
	Delivery Delivery
	Facts    []Fact
	Attempts []Attempt
	Payload  string
	Refresh  string // address that the state refreshes from; "" = it is final
}

// Attempt is one try to deliver.
type Attempt struct {
	At, Shown string // RFC 3339, and for readers
	Answer    string
	Duration  string
	OK        bool
	Excerpt   string // of the response's body; "" = none
}

func (DeliveryPage) name() string { return "developer/delivery" }
func (DeliveryPage) live() bool   { return true }

// EventCatalogue lists the types of events with a sample of each.
type EventCatalogue struct {
	Console
	List      []EventType
	Endpoints []Option // that a sample can be sent to
}

// EventType is one entry of EventCatalogue.
type EventType struct {
	Type, Description, Object string
	Members                   []Fact // of the object, with their types
	Sample                    string
}

func (EventCatalogue) name() string { return "developer/events" }

// Analytics is what the calls of an app came to, in one of its views.
type Analytics struct {
	Console
	Views       []Tab
	Choices     []Choices
	CSV         string // address of the charts' values
	Tiles       []Figure
	Note        string
	Charts      []Chart
	Groups      []Group
	ShowsErrors bool
	Refused     Ranks
	Refusals    []RefusalSum
}

// Choices are links of which one is chosen.
type Choices struct {
	Label string
	List  []Tab
}

// A Figure is a key figure with its change from the period before.
type Figure struct {
	Name, Value, Note string
	Change            string  // "+12%"; "" = none
	Good              bool    // the change is for the better
	Trend             []int64 // the values of the days, the oldest first; nil = not drawn
}

// Spark draws the trend.
func (f Figure) Spark() template.HTML { return Sparkline(f.Trend) }

// Daily is what calls came to day by day.
type Daily struct {
	Chart
	Table Sums
}

// Group is what calls came to by something else than days.
type Group struct {
	Heading string
	Ranks   Ranks
	Table   Sums
}

// RefusalSum counts the refusals of one code.
type RefusalSum struct{ Code, Count, Last, Means string }

func (Analytics) name() string { return "developer/analytics" }

// RequestLog lists the calls of an app.
type RequestLog struct {
	Console
	Table List
}

func (RequestLog) name() string      { return "developer/requests" }
func (RequestLog) live() bool        { return true }
func (RequestLog) scripts() []string { return []string{"table"} }

// CallPage is one call in words and numbers.
type CallPage struct {
	Console
	ID    string
	Badge string // Refunded, or Refund; "" = none
	Says  string
	Links []Link
	Facts []Fact
	Lines []ReceiptLine
	Money []Fact
	JSON  string         // what a refusal says besides
	Steps []TimelineStep // when what happened, as far as it is known
}

func (CallPage) name() string { return "developer/request" }

// GoLive is the way out of the sandbox.
type GoLive struct {
	Console
	Tier, Next string // Next "" = there is none to ask for
	Why        string // why there is none
	Ready      bool
	Pending    bool
	List       []Check
	Requests   []Asked
}

// Check is one item of the checklist.
type Check struct {
	Text          string
	Required, Met bool
	Fix           *Link
}

// Asked is a request that was made.
type Asked struct{ Created, Status, Reason, Decided string }

func (GoLive) name() string { return "developer/go-live" }

// Playground makes calls as a test account.
type Playground struct {
	Console
	Playgrounds []Tab   // of the text and the voice playground
	Why         string  // why it cannot be used; "" = it can
	Fields      []Field // who calls
	Models      []PlaygroundModel
	Parameters  []Field
	Efforts     []string // of reasoning, of all models
	Prompt      string
	PromptError string
	Result      *PlaygroundResult
}

// PlaygroundModel is a model to choose, with what the page's script needs to know of it. The prices are what a
// user pays for a million tokens, in micro-cents.
type PlaygroundModel struct {
	ID                         string
	InputPrice, OutputPrice    string
	Temperature, Tools, Vision bool
	Efforts                    string // separated by spaces
	Chosen                     bool
}

// PlaygroundResult is a call that the playground made without its script.
type PlaygroundResult struct {
	Status string
	OK     bool
	Answer string
	DocURL string // of the refusal; "" = none
	Money  []Fact
	Log    string // address of the call in the request log
	Raw    string
	Code   []Code
}

func (Playground) name() string      { return "developer/playground" }
func (Playground) scripts() []string { return []string{"playground"} }
