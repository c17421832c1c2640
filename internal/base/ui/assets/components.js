// Purser's web components, version 1: <purser-connect>, <purser-return> and <purser-meter>.
//
// They need no library and no inline style or script, and hold no access token: the page talks to
// its own server, which talks to Purser.

const STATES = ['ready', 'opening', 'connected', 'refused']
const CHANNEL = 'purser'

// The origin of Purser, when Purser serves this file; '' = an app serves it.
const home = new URL(import.meta.url).pathname === '/components/v1/purser.js' ? new URL(import.meta.url).origin : ''

const sheet = new CSSStyleSheet()
sheet.replaceSync(`
:host {
	--_accent: var(--purser-accent, light-dark(#0c5c49, #6fd3b0));
	--_on-accent: var(--purser-on-accent, light-dark(#ffffff, #08231a));
	--_ink: var(--purser-ink, light-dark(#1b2320, #e8eeea));
	--_soft: var(--purser-soft, light-dark(#57625d, #a2aea8));
	--_track: var(--purser-track, light-dark(#dcdbd3, #2b3733));
	--_bad: var(--purser-bad, light-dark(#a3231f, #ff9d92));
	--_radius: var(--purser-radius, 0.5rem);
	display: inline-block;
	color: var(--_ink);
	font: 1rem/1.4 var(--purser-font, system-ui, sans-serif);
}
:host([hidden]), [hidden] { display: none !important; }
:host([theme='light']) { color-scheme: light; }
:host([theme='dark']) { color-scheme: dark; }
button {
	box-sizing: border-box; min-block-size: 2.75rem; padding: 0.5rem 1.1rem;
	border: 1px solid transparent; border-radius: var(--_radius);
	background: var(--_accent); color: var(--_on-accent); font: inherit; font-weight: 600; cursor: pointer;
	transition: opacity 0.15s;
}
button:hover { opacity: 0.9; }
button[aria-disabled='true'] { cursor: progress; opacity: 0.85; }
:focus-visible { outline: 3px solid var(--_accent); outline-offset: 2px; }
a { color: var(--_accent); text-underline-offset: 0.15em; }
p { margin: 0; }
.done { font-weight: 600; }
.done::before { content: '✓' / ''; margin-inline-end: 0.4em; color: var(--_accent); }
.note { color: var(--_soft); font-size: 0.875rem; }
.note:not(:empty) { margin-block-start: 0.35rem; }
.meter { block-size: 0.6rem; margin-block: 0.4rem; border-radius: 1rem; background: var(--_track); overflow: hidden; }
.fill {
	block-size: 100%; inline-size: 0; border-radius: inherit; background: var(--_accent);
	transition: inline-size 0.4s;
}
:host(purser-meter) { display: block; min-inline-size: 12rem; }
:host([state='low']) .fill, :host([state='empty']) .fill { background: var(--_bad); }
.links { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; font-size: 0.875rem; }
@media (prefers-reduced-motion: reduce) { button, .fill { transition: none; } }
@media (forced-colors: active) {
	button { border-color: ButtonText; }
	.meter { border: 1px solid CanvasText; }
	.fill { background: Highlight !important; forced-color-adjust: none; }
}
`)

// make returns an element with these properties and attributes.
function make(tag, attributes = {}, ...children) {
	const e = document.createElement(tag)
	for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value)
	e.append(...children)
	return e
}

// safeURL returns an http or https URL, resolved on the page, or ''.
function safeURL(text) {
	try {
		const u = new URL(text, document.baseURI)
		return u.protocol === 'https:' || u.protocol === 'http:' ? u.href : ''
	} catch {
		return ''
	}
}

class PurserElement extends HTMLElement {
	constructor() {
		super()
		this.attachShadow({ mode: 'open', delegatesFocus: true }).adoptedStyleSheets = [sheet]
	}

	// text returns the text of an attribute, or the built-in English one.
	text(name, otherwise) {
		return this.getAttribute(name) ?? otherwise
	}

	// purserURL returns an address at Purser, or '' when its origin is not known.
	purserURL(path) {
		const origin = this.getAttribute('purser') || home
		return origin ? safeURL(new URL(path, origin).href) : ''
	}

	// announce dispatches an event that leaves the shadow tree.
	announce(type, detail = {}) {
		return this.dispatchEvent(new CustomEvent(type, { bubbles: true, composed: true, cancelable: true, detail }))
	}

	// load fetches the connection from the app's own server. It returns null when there is none.
	async load() {
		const src = safeURL(this.getAttribute('src') ?? '')
		if (!src) return null
		const response = await fetch(src, { headers: { accept: 'application/json' }, cache: 'no-store' })
		if (response.status === 401 || response.status === 404 || response.status === 204) return null
		if (!response.ok) throw new Error(`the app answered ${response.status}`)
		return response.json()
	}
}

// <purser-connect> is the button "Pay with Purser". Attributes:
//
//	href           the app's own URL that leads to the consent screen; or
//	client-id, redirect-uri, and allocation-mc, features, purser: opens the consent screen directly, with
//	               PKCE; the event purser-code brings what the app's server exchanges for tokens
//	popup          open it in a window of its own; the app's return page holds <purser-return>
//	src            the app's URL that answers GET /v1/connection's JSON, or 404 without a connection
//	state          ready, opening, connected or refused
//	label, label-opening, label-connected, label-refused, label-retry, label-manage   texts
//
// Events: purser-open (cancelable), purser-connected, purser-refused, purser-code.
class PurserConnect extends PurserElement {
	static observedAttributes = ['state', 'src', 'label', 'label-opening', 'label-connected', 'label-refused',
		'label-retry', 'label-manage']

	#channel
	#button = make('button', { type: 'button', part: 'button' })
	#label = make('span')
	#slot = make('slot')
	#done = make('p', { class: 'done', part: 'connected' })
	#note = make('p', { class: 'note', part: 'note', role: 'status' })
	#manage = make('a', { part: 'manage' })
	#connection = null
	#popup = null

	constructor() {
		super()
		this.#button.addEventListener('click', () => this.open())
		this.#slot.append(this.#label)
		this.#button.append(this.#slot)
		this.shadowRoot.append(this.#button, this.#done, this.#note)
	}

	connectedCallback() {
		this.#channel = new BroadcastChannel(CHANNEL)
		this.#channel.onmessage = (e) => this.#finish(e.data)
		addEventListener('focus', this.#check)
		addEventListener('pageshow', this.#reset)
		this.#render()
		this.#check()
	}

	disconnectedCallback() {
		this.#channel.close()
		removeEventListener('focus', this.#check)
		removeEventListener('pageshow', this.#reset)
	}

	attributeChangedCallback(name) {
		if (!this.isConnected) return
		if (name === 'src') this.#check()
		this.#render()
	}

	get state() {
		const state = this.getAttribute('state')
		return STATES.includes(state) ? state : 'ready'
	}

	set state(value) {
		if (value !== this.state) this.setAttribute('state', value)
	}

	// open opens the consent screen.
	async open() {
		if (this.state === 'opening' || !this.announce('purser-open')) return
		const inPopup = this.hasAttribute('popup')
		// A window that is opened after a wait is blocked.
		const popup = this.#popup = inPopup ? window.open('about:blank', 'purser', 'popup,width=480,height=760') : null
		this.state = 'opening'
		try {
			const url = await this.#startURL()
			if (!url) throw new Error('purser-connect needs href, or client-id and redirect-uri')
			if (popup) popup.location.href = url
			else location.assign(url) // also when the pop-up was blocked
		} catch (error) {
			popup?.close()
			this.state = 'ready'
			throw error
		}
	}

	// startURL returns the app's own start, or the consent screen with a fresh PKCE challenge.
	async #startURL() {
		if (this.hasAttribute('href')) return safeURL(this.getAttribute('href'))
		const client = this.getAttribute('client-id')
		const redirect = this.getAttribute('redirect-uri')
		const url = this.purserURL('/oauth/authorize')
		if (!client || !redirect || !url) return ''
		const verifier = randomText()
		const state = randomText()
		const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))
		const attempt = { state, verifier, redirectURI: redirect }
		sessionStorage.setItem('purser:' + state, JSON.stringify(attempt))
		const query = new URLSearchParams({
			response_type: 'code', client_id: client, redirect_uri: redirect, state,
			code_challenge: base64URL(new Uint8Array(digest)), code_challenge_method: 'S256',
		})
		for (const [attribute, name] of [['allocation-mc', 'requested_allocation_mc'], ['features', 'features']]) {
			if (this.hasAttribute(attribute)) query.set(name, this.getAttribute(attribute))
		}
		return url + '?' + query
	}

	// finish shows how a pop-up has ended.
	#finish(message) {
		if (this.state !== 'opening' || message?.source !== 'purser-return') return
		const attempt = message.result === 'connected' ? takeAttempt(message.state) : null
		if (attempt) {
			this.announce('purser-code', { code: message.code, ...attempt }) // the app says when it is connected
		} else if (message.result === 'connected') {
			this.#load(true)
		} else {
			this.state = 'refused'
			this.announce('purser-refused')
		}
	}

	// check asks the app's server whether there is a connection.
	#check = () => {
		if (this.state === 'opening' && this.#popup?.closed) {
			setTimeout(() => { if (this.state === 'opening') this.state = 'ready' }, 500) // its message may still come
		}
		if (this.hasAttribute('src') && this.state !== 'connected') this.#load(false)
	}

	async #load(returned) {
		let connection = null
		try {
			connection = await this.load()
		} catch {
			// The button stays: a click shows what is wrong.
		}
		this.#connection = connection
		if (connection ? connection.status !== 'revoked' : returned) {
			const before = this.state
			this.state = 'connected'
			this.#render()
			if (before !== 'connected') this.announce('purser-connected', { connection })
		}
	}

	// reset makes the button usable when the user comes back by the browser's own button.
	#reset = (e) => {
		if (e.persisted && this.state === 'opening') this.state = 'ready'
	}

	#render() {
		const state = this.state
		const connected = state === 'connected'
		this.#button.hidden = connected
		this.#button.setAttribute('aria-disabled', String(state === 'opening'))
		this.#label.textContent = state === 'opening' ? this.text('label-opening', 'Opening Purser…')
			: state === 'refused' ? this.text('label-retry', 'Try again') : this.text('label', 'Pay with Purser')
		this.#done.hidden = !connected
		const manage = connected && this.#connection ? this.purserURL('/connections/' + this.#connection.id) : ''
		this.#done.replaceChildren(this.text('label-connected', 'Connected to Purser.'))
		if (manage) {
			this.#manage.href = manage
			this.#manage.textContent = this.text('label-manage', 'Manage')
			this.#done.append(' ', this.#manage)
		}
		this.#note.textContent = state === 'refused'
			? this.text('label-refused', 'You declined. You haven’t been charged.') : ''
	}
}

// <purser-return> stands on the app's page to which consent returns. It tells the page that opened the
// window how it went, and closes the window. Its attribute result is connected or refused; without it,
// the address decides: error=… is refused. Where the consent screen was opened in the same window by a
// client-id, it dispatches purser-code instead.
class PurserReturn extends PurserElement {
	connectedCallback() {
		const query = new URLSearchParams(location.search)
		const result = this.getAttribute('result') ?? (query.has('error') ? 'refused' : 'connected')
		const [code, state] = [query.get('code'), query.get('state')]
		const attempt = code && takeAttempt(state)
		if (attempt) {
			this.announce('purser-code', { code, ...attempt })
			return
		}
		this.shadowRoot.replaceChildren(make('p', { role: 'status', part: 'text' },
			this.text('label', 'You can close this window.')))
		const channel = new BroadcastChannel(CHANNEL)
		channel.postMessage({ source: 'purser-return', result, code, state })
		channel.close()
		setTimeout(() => window.close(), 50) // the message leaves first
	}
}

// <purser-meter> shows what is left of a connection's spend cap. Attributes:
//
//	src        the app's URL that answers GET /v1/connection's JSON
//	events     the app's URL that relays GET /v1/connection/events
//	purser     where the links lead; not needed when Purser serves this file
//	no-links   hides the links
//	label, text-left, text-paused, text-revoked, text-none, label-raise, label-top-up, label-manage   texts;
//	           {left} and {cap} stand for amounts
//
// Its attribute state is loading, active, low, empty, paused, revoked, none or error. The event
// purser-balance brings each new connection.
class PurserMeter extends PurserElement {
	static observedAttributes = ['src', 'events', 'purser', 'no-links', 'label', 'text-left', 'text-paused',
		'text-revoked', 'text-none', 'label-raise', 'label-top-up', 'label-manage']

	#text = make('p', { part: 'text' })
	#fill = make('div', { class: 'fill', part: 'fill' })
	#meter = make('div', { class: 'meter', part: 'meter', role: 'meter', 'aria-valuemin': '0' })
	#links = make('p', { class: 'links', part: 'links' })
	#stream = null
	#connection = null

	constructor() {
		super()
		this.#meter.append(this.#fill)
		this.shadowRoot.append(this.#text, this.#meter, this.#links)
	}

	connectedCallback() {
		document.addEventListener('visibilitychange', this.#visible)
		this.refresh()
		this.#listen()
	}

	disconnectedCallback() {
		document.removeEventListener('visibilitychange', this.#visible)
		this.#stream?.close()
		this.#stream = null
	}

	attributeChangedCallback(name) {
		if (!this.isConnected) return
		if (name === 'src') this.refresh()
		if (name === 'events') this.#listen()
		this.#render()
	}

	get connection() {
		return this.#connection
	}

	// refresh reads the connection again.
	async refresh() {
		if (!this.#connection) this.setAttribute('state', 'loading')
		try {
			this.#show(await this.load())
		} catch {
			if (!this.#connection) this.setAttribute('state', 'error')
		}
		this.#render()
	}

	#visible = () => {
		if (document.visibilityState === 'visible') this.refresh()
	}

	#listen() {
		this.#stream?.close()
		this.#stream = null
		const url = safeURL(this.getAttribute('events') ?? '')
		if (!url || !this.hasAttribute('events')) return
		const stream = this.#stream = new EventSource(url, { withCredentials: true })
		stream.addEventListener('balance', (e) => {
			const data = JSON.parse(e.data)
			if (data.connection) this.#show(data.connection)
		})
		stream.addEventListener('end', (e) => {
			if (JSON.parse(e.data).reason !== 'connection_revoked') return // the browser reconnects
			stream.close()
			this.refresh()
		})
	}

	#show(connection) {
		this.#connection = connection
		let state = 'none'
		if (connection) {
			const left = connection.allocation_remaining_mc
			state = connection.status === 'frozen' ? 'paused' : connection.status === 'revoked' ? 'revoked'
				: left <= 0 ? 'empty' : left * 5 < connection.allocation_mc ? 'low' : 'active'
			this.announce('purser-balance', { connection })
		}
		this.setAttribute('state', state)
		this.#render()
	}

	#render() {
		const c = this.#connection
		const shown = !!c && c.status !== 'revoked'
		this.#meter.hidden = !shown
		this.#links.hidden = !shown || this.hasAttribute('no-links')
		if (!c) {
			this.#text.textContent = this.getAttribute('state') === 'none' ? this.text('text-none', 'Not connected.') : ''
			return
		}
		const fill = (text) => text.replaceAll('{left}', c.allocation_remaining_display)
			.replaceAll('{cap}', c.allocation_display)
		const left = fill(this.text('text-left', '{left} of {cap} left'))
		const says = c.status === 'frozen' ? fill(this.text('text-paused', 'Paused. {left} of {cap} left'))
			: c.status === 'revoked' ? this.text('text-revoked', 'Disconnected.') : left
		if (this.#text.textContent !== says) this.#text.textContent = says
		const share = c.allocation_mc > 0 ? Math.max(0, Math.min(1, c.allocation_remaining_mc / c.allocation_mc)) : 0
		this.#meter.setAttribute('aria-label', this.text('label', 'Spend cap'))
		this.#meter.setAttribute('aria-valuemax', String(c.allocation_mc))
		this.#meter.setAttribute('aria-valuenow', String(Math.max(0, c.allocation_remaining_mc)))
		this.#meter.setAttribute('aria-valuetext', says)
		this.#fill.style.setProperty('inline-size', (share * 100).toFixed(1) + '%')
		this.#renderLinks(c)
	}

	#renderLinks(c) {
		const links = []
		for (const [part, path, label] of [
			['raise', `/connections/${c.id}/increase`, this.text('label-raise', 'Raise the cap')],
			['top-up', '/top-up', this.text('label-top-up', 'Top up')],
			['manage', `/connections/${c.id}`, this.text('label-manage', 'Pause or stop')],
		]) {
			const href = this.purserURL(path)
			if (href && label) links.push(make('a', { part, href, target: '_blank', rel: 'noopener' }, label))
		}
		const shown = [...this.#links.children].map((a) => a.href + a.textContent).join()
		if (shown !== links.map((a) => a.href + a.textContent).join()) this.#links.replaceChildren(...links)
	}
}

// takeAttempt returns the attempt of a state that this window began, once; null = it began none.
function takeAttempt(state) {
	const text = state && sessionStorage.getItem('purser:' + state)
	if (!text) return null
	sessionStorage.removeItem('purser:' + state)
	return JSON.parse(text)
}

function randomText() {
	return base64URL(crypto.getRandomValues(new Uint8Array(32)))
}

function base64URL(bytes) {
	return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}

for (const [name, element] of [
	['purser-connect', PurserConnect], ['purser-return', PurserReturn], ['purser-meter', PurserMeter],
]) {
	if (!customElements.get(name)) customElements.define(name, element)
}

export { PurserConnect, PurserReturn, PurserMeter }
