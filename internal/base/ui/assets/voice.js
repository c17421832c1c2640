// The voice page of the developer console: it speaks with a session that the console
// has made, and shows what is said and what each reply cost. As a module of an
// AudioWorklet the same file is the microphone of mock sessions.
'use strict'

const RATE = 24000 // samples a second of the mock's PCM16

if (globalThis.registerProcessor) {
  registerProcessor('microphone', class extends AudioWorkletProcessor {
    at = 0 // in the block, of the next sample that is kept
    kept = []
    process([input]) {
      const samples = input[0] || []
      for (; this.at < samples.length; this.at += sampleRate / RATE) {
        this.kept.push(Math.max(-1, Math.min(1, samples[Math.floor(this.at)])) * 32767)
      }
      this.at -= samples.length
      if (this.kept.length >= RATE / 10) {
        this.port.postMessage(Int16Array.from(this.kept))
        this.kept = []
      }
      return true
    }
  })
} else {
  page(document.currentScript.src, document.getElementById('talk'))
}

function page(source, form) {
  const part = id => document.getElementById(id)
  const start = part('start'), end = part('end')
  let call = null // while one runs

  const tell = (text, bad) => {
    if (part('state').textContent !== text) part('state').textContent = text // which is read out
    part('state').classList.toggle('warn', Boolean(bad))
    part('state').hidden = false
  }

  const post = async (path, body) => {
    const answer = await fetch(path, {method: 'POST', body})
    const json = (answer.headers.get('Content-Type') || '').startsWith('application/json')
    const said = json ? await answer.json() : {}
    if (!answer.ok) throw new Error(said.error || 'Request refused (' + answer.status + '). Reload the page and try again.')
    return said
  }

  start.disabled = false // without this script it can do nothing
  form.addEventListener('submit', async e => {
    e.preventDefault()
    if (call) return
    start.disabled = true
    call = {talk: conversation(part('said')), stop: []}
    try {
      await begin()
      part('call').hidden = false
      end.disabled = false
      await watch()
    } catch (problem) {
      tell(explained(problem), true)
    }
    for (const stop of call.stop) stop()
    call = null
    start.disabled = false
    start.textContent = 'Talk again'
    end.disabled = true
    end.textContent = 'End'
    await list()
  })

  // list shows the sessions as they are now, beside the call that has ended.
  async function list() {
    const answer = await fetch(location.href, {redirect: 'error'}).catch(() => null)
    if (!answer || !answer.ok) return // they are there when the page is loaded again
    const now = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('sessions')
    if (now) part('sessions').replaceWith(now)
  }

  end.addEventListener('click', async () => {
    end.disabled = true
    end.textContent = 'Ending…'
    try {
      await post(call.made.end)
    } catch (problem) {
      tell(explained(problem), true)
      end.disabled = false
      end.textContent = 'End'
    }
  })

  // begin asks for the microphone before anything is paid for.
  async function begin() {
    tell('Asking for the microphone…')
    const mic = await navigator.mediaDevices.getUserMedia({audio: {echoCancellation: true, noiseSuppression: true}})
    call.stop.push(() => mic.getTracks().forEach(track => track.stop()))
    tell('Connecting…')
    const made = call.made = await post(form.action, new URLSearchParams(new FormData(form)))
    part('said').replaceChildren()
    part('notice').textContent = made.client.notice || ''
    part('notice').hidden = !made.client.notice
    await (made.client.mode === 'mock' ? socket : peer)(made.client, mic)
  }

  // peer speaks with the model directly, by WebRTC.
  async function peer(client, mic) {
    const pc = new RTCPeerConnection(), channel = pc.createDataChannel('oai-events')
    call.stop.push(() => pc.close())
    const talk = call.talk
    channel.onmessage = m => talk(JSON.parse(m.data))
    mic.getTracks().forEach(track => pc.addTrack(track, mic))
    pc.ontrack = e => {
      const sound = new Audio()
      sound.srcObject = e.streams[0]
      sound.play()
      call.stop.push(() => sound.pause())
    }
    await pc.setLocalDescription(await pc.createOffer())
    const answer = await fetch(client.offer_url, {
      method: 'POST', body: pc.localDescription.sdp, headers: {'Authorization': 'Bearer ' + client.ticket, 'Content-Type': 'application/sdp'},
    })
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}))
      throw new Error(said.error ? said.error.message : 'The offer was refused (' + answer.status + ').')
    }
    await pc.setRemoteDescription({type: 'answer', sdp: await answer.text()})
  }

  // socket speaks with the mock voice: events, and audio in them.
  async function socket(client, mic) {
    const audio = new AudioContext()
    call.stop.push(() => audio.close())
    await audio.audioWorklet.addModule(source)
    const ws = new WebSocket(client.mock_url + '?ticket=' + encodeURIComponent(client.ticket))
    await new Promise((resolve, reject) => {
      ws.onopen = resolve
      ws.onclose = e => reject(new Error('The session did not start' + (e.reason ? ': ' + e.reason : '') + '.'))
    })
    call.stop.push(() => ws.close())
    const play = speaker(audio), talk = call.talk
    ws.onmessage = m => {
      const e = JSON.parse(m.data)
      play(e)
      talk(e)
    }
    const worklet = new AudioWorkletNode(audio, 'microphone')
    worklet.port.onmessage = m => {
      if (ws.readyState === WebSocket.OPEN) ws.send(JSON.stringify({type: 'input_audio_buffer.append', audio: btoa(String.fromCharCode(...new Uint8Array(m.data.buffer)))}))
    }
    audio.createMediaStreamSource(mic).connect(worklet).connect(audio.destination) // silence: what leads nowhere is not run
  }

  // watch shows what the server knows of the session, every second until its end.
  async function watch() {
    for (let failed = 0; ;) {
      const answer = await fetch(call.made.watch, {redirect: 'error'}).catch(() => null)
      if (answer && answer.ok) {
        const now = await answer.json()
        failed = 0
        part('time').textContent = now.time
        part('spent').textContent = now.spent
        part('count').textContent = now.replies.length
        call.talk.prices(now.replies)
        tell(now.text, now.bad)
        if (now.ended) return
      } else if (++failed > 5 || answer && answer.status < 500) {
        throw new Error('The server can’t be reached. The session ended here. See the list of sessions for how it ended.')
      }
      await new Promise(resolve => setTimeout(resolve, 1000))
    }
  }
}

// speaker plays what a mock voice says, one piece after the other, until it is cut.
function speaker(audio) {
  let next = 0
  const playing = new Set()
  return e => {
    if (e.type === 'output_audio_buffer.cleared' || e.type === 'input_audio_buffer.speech_started') {
      playing.forEach(piece => piece.stop())
      next = 0
    }
    if (e.type !== 'response.output_audio.delta') return
    const bytes = Uint8Array.from(atob(e.delta), c => c.charCodeAt(0)), pcm = new Int16Array(bytes.buffer)
    const buffer = audio.createBuffer(1, pcm.length, RATE)
    buffer.copyToChannel(Float32Array.from(pcm, v => v / 32768), 0)
    const piece = new AudioBufferSourceNode(audio, {buffer})
    piece.connect(audio.destination)
    playing.add(piece)
    piece.onended = () => playing.delete(piece)
    next = Math.max(next, audio.currentTime + 0.05)
    piece.start(next)
    next += buffer.duration
  }
}

// conversation shows what is said. Receipts come in the order of the replies that
// were billed; one that said nothing has none.
function conversation(list) {
  const replies = new Map()
  let spoke = 0
  const add = (who, name) => {
    const item = document.createElement('li'), head = document.createElement('h3'), text = document.createElement('p'), price = document.createElement('p')
    item.className = who
    head.textContent = name
    price.className = 'hint'
    item.append(head, text, price)
    list.append(item)
    return {text, price, free: false}
  }
  const reply = id => {
    if (!replies.has(id)) replies.set(id, add('model', 'Model'))
    return replies.get(id)
  }
  const talk = e => {
    switch (e.type) {
      case 'input_audio_buffer.speech_started':
        spoke = e.audio_start_ms
        break
      case 'input_audio_buffer.speech_stopped':
        add('you', 'You').text.textContent = 'Spoke for ' + ((e.audio_end_ms - spoke) / 1000).toFixed(1) + ' s'
        break
      case 'response.created':
        reply(e.response.id).price.textContent = 'Speaking…'
        break
      case 'response.output_audio_transcript.delta':
        reply(e.response_id).text.textContent += e.delta
        break
      case 'response.output_audio_transcript.done':
        reply(e.response_id).text.textContent = e.transcript
        break
      case 'response.done': {
        const r = reply(e.response.id)
        r.free = e.response.status === 'failed' || Boolean(e.response.usage) && e.response.usage.output_tokens === 0
        if (r.free) r.price.textContent = 'Not billed: no output.'
        break
      }
      case 'error':
        add('model', 'Error').text.textContent = e.error.message
    }
    list.hidden = !list.childElementCount
  }
  talk.prices = receipts => {
    const billed = [...replies.values()].filter(r => !r.free)
    receipts.slice(0, billed.length).forEach((receipt, i) => {
      const link = document.createElement('a'), sum = document.createElement('strong')
      link.href = receipt.href
      link.textContent = 'Receipt'
      sum.className = 'num'
      sum.textContent = receipt.price
      billed[i].price.replaceChildren(sum, ' · ' + receipt.detail + ' · ', link)
    })
  }
  return talk
}

function explained(problem) {
  switch (problem.name) {
    case 'NotAllowedError': return 'Microphone access is blocked. Allow it and try again.'
    case 'NotFoundError': return 'No microphone found.'
    case 'TypeError': return navigator.mediaDevices ? 'The server can’t be reached. Try again.' : 'Microphones need https:// or localhost.'
  }
  return problem.message
}
