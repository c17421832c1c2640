# first_call URL COMMAND…: what "The first call" of docs/operate/install.md says, by the pages that a person would use:
# an invitation, an app in the sandbox, a test account, a token, a call. COMMAND is purser operator; its token is in
# PURSER_OPERATOR_TOKEN. It prints what the call was charged.
first_call() {
  local url=$1 jar link token answer; shift
  jar=$(mktemp)
  page() { curl --fail --silent --show-error --cookie "$jar" --cookie-jar "$jar" --output "$jar.html" "$@"; }
  link=$("$@" --url "$url" invite trial@example.com | grep -o 'http[^[:space:]]*/sign-up/invited/[A-Za-z0-9_-]*')
  page "$link"
  page --data-urlencode 'password=a long enough passphrase' "$link"
  page --data '' "$url/settings/developer"
  page --data name=Trial --data client_type=confidential --data redirect_uris=https://app.example.com/callback \
    "$url/developer/apps"
  page --data '' "$url/developer/test-accounts"
  page --data '' "$url/docs/quickstart"
  token=$(sed -n 's/.*id="access-token">\([^<]*\)<.*/\1/p' "$jar.html")
  answer=$(curl --fail --silent --show-error --header "Authorization: Bearer $token" \
    --header 'Content-Type: application/json' --header "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" \
    --data '{"messages": [{"role": "user", "content": "Hello"}]}' "$url/v1/ai/gpt-6-luna")
  grep -o '"user_charge_mc": *[1-9][0-9]*' <<<"$answer" || { echo "$answer"; return 1; }
}
