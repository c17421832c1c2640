// Package emulator is a server of the text APIs of OpenAI, Anthropic and Google,
// as far as Purser uses them, for tests and for trying Purser without a key. It
// is the other side of the wire: it shares no code with Purser's adapters, so
// that a mistake of theirs is not repeated here.
//
// It checks what the providers check (keys, versions, unknown members, what each
// model takes, the order of tool messages, signatures), and answers with canned
// prose about the last text of the user, which is the same for the same request,
// streamed or not. Any key is taken except bad-key (refused), no-quota (its
// account is out of credit) and no-permission.
//
// # Steering
//
// Lines of the last user text steer the answer. Lines beginning with "!call"
// make the model call tools, if it is offered any and may choose:
//
//	!call weather {"city":"Oslo"}   call this; without arguments, they are made up from the schema
//	!step                           what follows is called when the results of the calls above are there
//
// Lines beginning with "!emu", or a header X-Emulator, hold words. Those that go
// wrong before the answer:
//
//	status=503         answer with this status
//	code=x             with this error code (OpenAI), type (Anthropic) or status (Google)
//	daily              429 of Google: the quota of the day is used up
//	retry_after=1.5    seconds; retry_after_ms=1500 and retry_after_date=2 (seconds from now) are the other forms
//	should_retry=false the header x-should-retry
//	html               a proxy's page, with 502 unless status is given
//	redirect           302 to another path
//	hang               never answer
//	cut=0              reset the connection
//
// Those that go wrong within it (n counts the events that come before):
//
//	cut=300            reset the connection after so many bytes
//	end=n              end cleanly, as if all had been said
//	error=n            an error event; error=0 is the first event
//	hang=n             then say nothing more
//	garbage=n          an event that is no JSON; a whole answer is no JSON either
//
// With fails=n all of these happen to the first n requests of this text only.
// What is said:
//
//	words=50           so many words
//	calls=2            so many calls of tools, say: with a text before them
//	empty_args         calls without arguments; malformed_call: with broken ones
//	stop=x             the reason of the end, as it is
//	refusal, safety    the model refuses; a filter stops it midway
//	thinking, redacted thoughts are shown, or are not for us to read
//	reasoning_only     thoughts take all the tokens there were
//	usage=1000,200,100,50,10  input with cached and written parts, output with reasoning part
//	no_usage           the answer does not say what it used
//	usage_raw={"x":-1} the usage object, as it is, without spaces
//
// And how:
//
//	delay=200ms        before the first byte; pace=5ms: before each event
//	split              byte by byte
//	huge               one event has more than a megabyte on its line
//	stored_after=2s    the stored record is there only then; unstored: never
//
// GET /emulator/requests lists the requests that came, without keys, oldest
// first; DELETE forgets them, and the tries that fails counts.
package emulator
