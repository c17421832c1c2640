// Package emulator is a server of the text APIs of OpenAI, Anthropic and Google and of OpenAI's
// realtime API, as far as Purser uses them, for tests and for trying Purser without a key. It shares
// no code with Purser's adapters, so that it does not repeat their mistakes.
//
// It checks what the providers check (keys, versions, unknown members, what each model takes, the
// order of tool messages, signatures), and answers with canned prose about the last text of the user.
// The answer is the same for the same request, streamed or not. Any key works except bad-key
// (refused), no-quota (its account is out of credit) and no-permission.
//
// Package [github.com/purserhq/purser/emulator/stripe] emulates Stripe.
//
// # Steering
//
// Lines of the last user text steer the answer. Lines that begin with "!call" make the model call
// tools, if the request offers any and lets the model choose:
//
//	!call weather {"city":"Oslo"}   call this tool; without arguments, they are made up from the schema
//	!step                           make the calls below when the results of the calls above have come
//
// Lines that begin with "!emu", and a header X-Emulator, hold words. Faults before the answer:
//
//	status=503         answer with this status
//	code=x             with this error code (OpenAI), type (Anthropic) or status (Google)
//	daily              429 of Google: the quota of the day is used up
//	retry_after=1.5    Retry-After, in seconds; other forms are retry_after_ms=1500 and
//	                   retry_after_date=2 (seconds from now)
//	should_retry=false the header x-should-retry
//	html               the HTML page of a proxy, with 502 unless status is given
//	redirect           302 to another path
//	hang               never answer
//	cut=0              reset the connection
//
// Faults within the answer (n counts the events that come before):
//
//	cut=300            reset the connection after so many bytes
//	end=n              end the stream cleanly before the answer is complete
//	error=n            an error event; error=0 is the first event
//	hang=n             then send nothing more
//	garbage=n          an event that is not JSON; a whole answer is not JSON either
//	error_form=nested  the error event of Responses has its members in error; failed: it is response.failed
//
// With fails=n all of these happen only to the first n requests of this text. What the answer says:
//
//	words=50           so many words
//	calls=2            so many calls of tools; say: with a text before them
//	empty_args         calls without arguments; malformed_call: with malformed ones
//	stop=x             the stop reason, as it is
//	refusal, safety    the model refuses; a filter stops it midway
//	thinking, redacted thoughts are shown; thoughts are redacted
//	reasoning_only     thoughts use up all output tokens
//	blocks=rctrct      the answer has these blocks: thoughts (of models that think), calls (if there are tools),
//	                   and parts of the text; Responses says the phase of each of several messages
//	usage=1000,200,100,50,10  input with cached and written parts, output with reasoning part
//	no_usage           the answer has no usage
//	usage_raw={"x":-1} the usage object, as it is, without spaces
//	short_usage        the last chunk of Google lacks candidatesTokenCount
//
// Lines in the inputs of embeddings steer them too, as far as the words apply. Google's have usage only
// with usage or usage_raw.
//
// How the answer is sent:
//
//	delay=200ms        before the first byte; pace=5ms: before each event
//	split              byte by byte
//	huge               one event has more than a megabyte on its line
//	twice              the first event comes twice (not Google's, which has no first event)
//	unknown=n          an event of an unknown type, with odd members, after so many (Anthropic, Responses)
//	whole              calls come whole in the event that begins them
//	stored_after=2s    the stored record exists only after this time; unstored: never
//
// # Caches
//
// The usage shows each provider's prompt cache, which an emulator keeps for all keys: at Anthropic what
// ends with cache_control, found up to 20 blocks back, for 5 minutes; at OpenAI prefixes of 1,024
// tokens and more in steps of 128, by prompt_cache_key, for 30 minutes; at Google prefixes above the
// model's minimum, for 5 minutes. The word usage replaces it.
//
// GET /emulator/requests lists the requests that came, without keys, oldest first. DELETE removes
// them, and resets what fails counts.
//
// # Realtime
//
//	POST /v1/realtime/calls              multipart/form-data, parts sdp and session: 201, the answer, Location
//	GET  /v1/realtime?call_id=rtc_…      the sideband, a WebSocket with the key of the call
//	POST /v1/realtime/calls/{id}/hangup  200, then 404 call_id_not_found
//
// The models are gpt-realtime-2.1, -2.1-mini, -2, -1.5, gpt-realtime and gpt-realtime-mini. A browser
// is answered by a real WebRTC peer. It sends Opus (a tune while the model speaks, else silence),
// detects the user's turns in the audio that it receives (three loud packets in a row, then the
// silence of turn_detection), sends all events on the data channel oai-events too, and obeys the
// browser's events there. Sidebands get all events but session.created. An offer with a line
// a=x-emulator:no-media, instructions with !emu no_media, and Options.NoMedia get a canned answer:
// such a call has events only, and scripts speak for its user.
//
// A word is 300 ms of speech; a token is 50 ms of the model's voice or 100 ms of the user's. What the
// previous reply read and said is cached, in steps of 64 tokens. Events of a reply come 20 ms apart,
// after 50 ms. To act while a reply is being made, ask for pace=500ms or so.
//
// Lines in the session's instructions steer a call. Lines in the last text of the user and in the
// instructions of response.create steer replies as well. !call and !step are as above. For the call:
//
//	status=503 code=x  the offer is refused; hang: never answered; slow=2s: answered late
//	no_media           see above
//	not_found=n        the first n sidebands get 404; fresh=2s: all of them do, for so long
//	drop=n             a sideband is dropped after n events, or drop=response.created after that one
//	drops=k            k times, or drops=forever; once if it is missing
//	drop_code=1000     with this close code; 1006, a broken connection, if it is missing
//	down=2s            after it, sidebands get 503 for so long, or down=forever
//	mute=n             after n events a sideband is silent, for pings too, though it is open
//	transcript_late=d  transcripts come so long after the speech
//	transcript_fails   they fail
//	transcript_twice   they come twice
//	transcript_no_usage  without usage
//	vanish=n           the browser is lost when n replies are done, without an event
//	leave_close        when the browser leaves or is lost, the call ends and the sideband is closed
//	leave_gone         the call ends and the sideband stays open, silent; without both, the call goes on
//	private            sidebands do not see the browser's session.update
//	expire=5s          the session expires: the event session_expired, then the end
//	hangup_fails=n     the first n hang-ups get 500, or hangup_status=503
//	hangup_gone        the next one gets 404, because the call has ended by itself
//	hangup_lost=n      the next n hang-ups are carried out, and their answers are lost
//	turns=n            the user says n things, each when the model has been heard,
//	speech=1s          so long, every=500ms after it; with no_media the user hangs up 5 s later
//
// A line "!browser {…}" is an event that the browser sends when the first sideband is attached;
// "!browser@response.done {…}" after the first such event, and "!browser@response.done#2 {…}" after
// the second.
//
// For replies:
//
//	only=2,3           the words below and calls affect only these replies of the call, counted from 1
//	hang=n             says nothing more after n steps; hang=0: after response.created
//	deaf               cannot be cancelled
//	fail=code          is failed, with this code
//	incomplete=reason  is incomplete: content_filter
//	no_usage           usage is null; omit_usage: it is missing; cancel_no_usage: null if it is cancelled
//	usage=1,2,3,4,5,6,7 text and audio read, text and audio of it cached, text and audio said,
//	                   reasoning within the text
//	usage_raw={"x":-1} the usage object, as it is, without spaces
//	no_done, duplicate response.done is missing, or comes twice
//	no_stopped         output_audio_buffer.stopped is missing
//	unknown, garbage   an event of an unknown type; a message that is not JSON
//	calls=2, say, empty_args, malformed_call  as above
//
// How all replies are sent:
//
//	words=20           so many words; audio=3s: so much audio
//	delay=50ms         before the first event; pace=20ms: between events
//	fast=10            is heard so many times as fast as it is counted; so are the scripted turns
//
// GET /emulator/realtime reports all calls (live, hangups, replies, and the longest time and the most
// audio that went unwatched in one call: unwatched_ms, unwatched_audio_ms). GET
// /emulator/realtime/{id} reports one, with its latest events, each time without a sideband, and
// what each reply used that has ended.
// DELETE /emulator/realtime removes the calls that have ended. POST /emulator/realtime/{id} makes
// something happen, with a body {"do":…}:
//
//	speak              the user speaks: text (with steering; it is not shown), ms (1000), fast (1)
//	speech_start       the user begins to speak and does not stop; speech_stop
//	browser            the browser sends event
//	emit               the provider sends event
//	drop               the sidebands are dropped, with code (1006)
//	vanish, expire     as above
//	close              the call ends, and the sidebands are closed with code
package emulator
