// Package emulator is a server of the text APIs of OpenAI, Anthropic and Google,
// and of OpenAI's realtime API, as far as Purser uses them, for tests and for trying Purser without a key. It
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
//
// # Realtime
//
//	POST /v1/realtime/calls              multipart/form-data, parts sdp and session: 201, the answer, Location
//	GET  /v1/realtime?call_id=rtc_…      the sideband, a WebSocket with the key of the call
//	POST /v1/realtime/calls/{id}/hangup  200, then 404 call_id_not_found
//
// The models are gpt-realtime-2.1, -2.1-mini, -2, -1.5, gpt-realtime and
// gpt-realtime-mini. A browser is answered by a real peer: it sends Opus (a tune
// while the model speaks, else silence), finds the user's turns in what it gets (three
// loud packets in a row, then the silence of turn_detection), and mirrors the events
// on the data channel oai-events, whose own events it obeys. Sidebands get all events
// but session.created. An offer with a line a=x-emulator:no-media, instructions with
// !emu no_media, and Options.NoMedia are answered with canned words: such a call has
// events only, and is spoken to by scripts.
//
// A word is 300 ms of speech; a token is 50 ms of the model's voice, 100 ms of the
// user's. What the reply before has read and said is cached, in steps of 64 tokens.
// Events of a reply come 20 ms apart, after 50 ms. Who means to catch a reply while
// it is made asks for pace=500ms or so.
//
// Calls are steered by lines in the session's instructions, replies also by those in
// the last text of the user, or in the instructions of response.create. !call and
// !step are as above. Of the call:
//
//	status=503 code=x  the offer is refused; hang: never answered; slow=2s: answered late
//	no_media           see above
//	not_found=n        the first n sidebands are 404; fresh=2s: all are, for so long
//	drop=n             a sideband is dropped after n events, or drop=response.created after that one
//	drops=k            k times, or drops=forever; once if it is missing
//	drop_code=1000     with this close code; 1006, a broken connection, if it is missing
//	down=2s            and sidebands are 503 for so long after it, or down=forever
//	mute=n             after n events a sideband is dead, pings too, though it is open
//	vanish=n           the browser is lost when n replies are done; nobody is told
//	leave_close        when the browser leaves or is lost, the call ends and the sideband is closed
//	leave_gone         the call ends and the sideband stands, silent; without both, the call lives on
//	private            sidebands are not told of the browser's session.update
//	expire=5s          the session expires: the event session_expired, then the end
//	hangup_fails=n     the first n hang-ups are 500, or hangup_status=503
//	hangup_gone        then one is 404, for the call has ended by itself
//	hangup_lost=n      then n hang-ups are made, and their answers lost
//	turns=n            the user says n things, each when the model has been heard,
//	speech=1s          so long, every=500ms after it
//
// A line "!browser {…}" is an event that the browser sends when the sideband is
// there; "!browser@response.done {…}" after the first such event, and
// "!browser@response.done#2 {…}" after the second.
//
// Of replies:
//
//	only=2,3           what follows, and calls, is of these replies alone, counted in the call from 1
//	hang=n             says nothing more after n steps; hang=0: after response.created
//	deaf               and cannot be cancelled
//	fail=code          is failed, with this code
//	incomplete=reason  is incomplete: content_filter
//	no_usage           usage is null; omit_usage: there is none; cancel_no_usage: if it is cut
//	usage=1,2,3,4,5,6,7 text and audio read, text and audio of it cached, text and audio said, reasoning of the text
//	usage_raw={"x":-1} the usage object, as it is, without spaces
//	no_done, duplicate response.done is missing, or comes twice
//	no_stopped         output_audio_buffer.stopped is missing
//	unknown, garbage   an event of a type that nobody knows; a message that is no JSON
//	calls=2, say, empty_args, malformed_call  as above
//
// And how, of all replies:
//
//	words=20           so many words; audio=3s: so much audio
//	delay=50ms         before the first event; pace=20ms: between events
//	fast=10            is heard so many times as fast as it counts; so are the turns by script
//
// GET /emulator/realtime tells of all calls (live, hangups, replies, and the most that
// went unwatched in one call: unwatched_ms, unwatched_audio_ms), GET
// /emulator/realtime/{id} of one, with its latest events and with each time that no
// sideband listened. DELETE /emulator/realtime forgets the calls that have ended. POST
// /emulator/realtime/{id} makes happen, with a body {"do":…}:
//
//	speak              the user speaks: text (with steering; nobody is shown it), ms (1000), fast (1)
//	speech_start       and does not stop; speech_stop
//	browser            the browser sends event
//	emit               the provider sends event
//	drop               the sidebands are dropped, with code (1006)
//	vanish, expire     as above
//	close              the call ends, and the sidebands are closed with code
package emulator
