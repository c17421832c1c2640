package session

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/pricing"
)

const (
	// transcriptSpeech is the speech that the hold of a transcript covers. What is longer is charged to what is left.
	transcriptSpeech = time.Minute
	// transcriptWait is how long after the speech a transcript may come.
	transcriptWait = time.Minute
	// maxTranscripts is how many transcripts may be waited for; one more is not held for.
	maxTranscripts = 8

	// What is more cannot be the usage of a speech in a call.
	maxTranscriptInput  = 64_000
	maxTranscriptOutput = 16_000

	// TranscriptTokensPerSecond are the most tokens of text that a second of speech becomes.
	TranscriptTokensPerSecond = 8

	// transcriptID begins the name by which the ledger charges a transcript; the id of its item follows. The provider's
	// ids of replies have no slash.
	transcriptID = "transcript/"
)

// Transcription is how the provider writes down what the user says.
type Transcription struct {
	Model    string `json:"model"`
	Language string `json:"language,omitempty"`
	Prompt   string `json:"prompt,omitempty"`
}

// Transcript is a speech of the user that the provider has not written down. Its hold is made when the speech begins.
type Transcript struct {
	ItemID   string
	N        int64
	Hold     HoldPhase
	Spoken   time.Duration // 0 = the user still speaks
	GiveUpUS int64         // when it is no longer waited for; 0 = not before the user has stopped
}

// findTranscript returns the transcript that a hold is for, or nil.
func (m *machine) findTranscript(n int64) *Transcript {
	for i := range m.Transcripts {
		if m.Transcripts[i].N == n {
			return &m.Transcripts[i]
		}
	}
	return nil
}

// transcriptBegun asks for the hold of the transcript of a speech that begins.
func (m *machine) transcriptBegun(itemID string) {
	named := func(t Transcript) bool { return t.ItemID == itemID }
	if m.Config.Transcription == nil || itemID == "" || len(itemID) > MaxName || m.Ending != nil ||
		len(m.Transcripts) >= maxTranscripts || m.Numbers >= MaxReplies || slices.ContainsFunc(m.Transcripts, named) {
		return
	}
	m.takeNumber()
	m.mustPersist = true
	m.Transcripts = append(m.Transcripts, Transcript{ItemID: itemID, N: m.LastN, Hold: Requested})
	seconds := int64(transcriptSpeech / time.Second)
	m.addActions(Hold{
		N:          m.LastN,
		Transcript: true,
		VoiceInput: pricing.VoiceInput{
			Text:  textTokens(len(m.Config.Transcription.Prompt)) + itemOverheadTokens,
			Audio: seconds * AudioInputPerSecond,
		},
		MaxOutputTokens: seconds * TranscriptTokensPerSecond,
		BudgetMC:        m.budget(),
	})
}

// budget returns what is left of max_cost_mc; nil = there is none.
func (m *machine) budget() *money.MC {
	if m.MaxCostMC == nil {
		return nil
	}
	left := *m.MaxCostMC - m.ChargedMC
	return &left
}

// transcriptSpoken notes how long the speech was of which the transcript is to come.
func (m *machine) transcriptSpoken(itemID string, spoken time.Duration) {
	for i := range m.Transcripts {
		if t := &m.Transcripts[i]; t.ItemID == itemID && t.Spoken == 0 && !m.isDue(t.GiveUpUS) {
			t.Spoken, t.GiveUpUS, m.mustPersist = spoken, m.after(transcriptWait), true
		}
	}
}

// transcriptDone bills a transcript, by the provider's usage or by the spoken seconds. It is billed by itself, whatever
// became of the reply to the same speech. A second event of the same item changes nothing.
func (m *machine) transcriptDone(itemID string, rawUsage json.RawMessage, transcript string) {
	name := transcriptID + itemID
	if itemID == "" || len(itemID) > MaxName || slices.Contains(m.BilledIDs, name) {
		return
	}
	var t Transcript
	if i := slices.IndexFunc(m.Transcripts, func(t Transcript) bool { return t.ItemID == itemID }); i >= 0 {
		t = m.Transcripts[i]
		m.Transcripts = slices.Delete(m.Transcripts, i, i+1)
	}
	m.mustPersist = true
	charge := Settle{N: t.N, ReplyID: name, Transcript: true}
	if u := readUsage(rawUsage); u != nil && u.AudioOutput == 0 && u.Input() > 0 &&
		pricing.VoiceUsable(*u, maxTranscriptOutput, maxTranscriptInput) {
		charge.Usage = *u
	} else {
		charge.Estimated, charge.Usage = true, pricing.VoiceUsage{
			AudioInput: int64(t.Spoken/time.Second) * AudioInputPerSecond,
			TextOutput: min(int64(len(transcript))/5, int64(t.Spoken/time.Second)*TranscriptTokensPerSecond),
		}
	}
	if t.Hold != Held && t.Hold != Requested {
		if charge.Estimated { // an estimate is at most its hold, and there is none
			return
		}
		charge.Unheld = true
		m.takeNumber()
		charge.N = m.LastN
	}
	m.giveToLedger(charge)
	if m.Numbers >= MaxReplies { // each leaves a row, also if it was not held for
		m.beginEnd(RateLimited, false)
	}
}

// transcribedUnasked counts a transcript in a session that has none as tampering: a browser has switched it on, which
// nobody pays for, and to which the user has not agreed.
func (m *machine) transcribedUnasked(itemID string) {
	name := transcriptID + itemID
	if m.Ending != nil || len(itemID) > MaxName || slices.Contains(m.BilledIDs, name) {
		return
	}
	m.rememberBilled(name) // the second event of an item is no second attempt
	m.reportReset([]string{"conversation.item.input_audio_transcription"})
}

// transcriptFailed ends a transcript that does not come: it costs nothing.
func (m *machine) transcriptFailed(itemID string) {
	for i := range m.Transcripts {
		if t := &m.Transcripts[i]; t.ItemID == itemID {
			t.GiveUpUS, m.mustPersist = m.nowUS, true
		}
	}
}

// giveUpTranscripts releases the holds of transcripts that are no longer waited for, or of all. One that comes after
// its time is free, so it is remembered as if it were billed.
func (m *machine) giveUpTranscripts(all bool) {
	for i := 0; i < len(m.Transcripts); {
		t := &m.Transcripts[i]
		if all && (t.GiveUpUS == 0 || t.GiveUpUS > m.nowUS) {
			t.GiveUpUS = m.nowUS
		}
		switch {
		case !m.isDue(t.GiveUpUS):
		case t.Hold == Held:
			t.Hold, m.mustPersist = Releasing, true
			m.addActions(Release{t.N})
			if !all {
				m.rememberBilled(transcriptID + t.ItemID)
			}
		case t.Hold == NoHold:
			if !all {
				m.rememberBilled(transcriptID + t.ItemID)
			}
			m.Transcripts, m.mustPersist = slices.Delete(m.Transcripts, i, i+1), true
			continue
		}
		i++
	}
}

// KindOf returns what the receipt of a charge is for, by the name of its reply or transcript.
func KindOf(replyID string) string {
	if strings.HasPrefix(replyID, transcriptID) {
		return KindTranscription
	}
	return KindReply
}

// transcriptHeld notes what the ledger answered to the hold of a transcript. One without a hold is charged to what is
// left when it comes: the session ends only when the hold of its next reply is refused.
func (t *Transcript) transcriptHeld(made bool) {
	if t.Hold != Requested {
		return
	}
	if t.Hold = NoHold; made {
		t.Hold = Held
	}
}

// reportTranscript tells the app what a transcript cost.
func (m *machine) reportTranscript(e *Settled) {
	m.addActions(ToApp{Event: transcriptSettledMessage{
		Type:                  "svc.transcription.settled",
		ID:                    m.ID,
		ItemID:                strings.TrimPrefix(e.ReplyID, transcriptID),
		Receipt:               NewReceipt(e.Entry, KindTranscription),
		ChargedMC:             m.ChargedMC,
		ChargedDisplay:        m.ChargedMC.Display(),
		AllocationRemainingMC: e.Entry.RemainingMC,
	}})
}
