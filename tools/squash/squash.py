#!/usr/bin/env python3
"""Writes the squashed schema, once: it goes away with the migrations that it reads.

    squash.py internal/base/db/migrations OUT POSTGRES_URL

OUT gets NNNN_area.sql files. Then both are applied to empty databases, the tables and columns of the old one are
renamed, and the catalogues are compared: SQLite's by the tokens of sqlite_master, and PostgreSQL's by pg_dump -s,
statement by statement. Exit 1 if they differ. A new table must be put into AREAS.
"""
import sys, re, os, sqlite3, subprocess, collections
from lib import *

TABLES = {'windows': 'counters', 'rollups': 'daily_totals', 'answers': 'stored_responses', 'chunks': 'checkpoints',
          'deferred': 'deferrals'}
COLUMNS = {('windows', 'told'): 'limit_reported', ('holds', 'counts'): 'reservations',
           ('holds', 'bucket'): 'feature_label', ('ledger', 'bucket'): 'feature_label',
           ('connections', 'faster'): 'faster_spend'}
TYPES = {'answer_row': 'stored_response_row', 'rollup_row': 'daily_total_row', 'rollup_cache_row': 'daily_total_cache_row'}
ATTRIBUTES = {('hold_row', 'counts'): 'reservations', ('hold_row', 'bucket'): 'feature_label',
              ('ledger_row', 'bucket'): 'feature_label', ('ledger_call_row', 'bucket'): 'feature_label',
              ('connection_row', 'faster'): 'faster_spend'}
PARTITIONED = {'ledger': ('id', 'led_'), 'stored_responses': ('request_id', 'req_'), 'deliveries': ('id', 'whd_')}
BOUND = '06hcx2ym000000000000000000' # id.Floor of 2027-01-01
# Words in comments: the glossary's.
WORDS = [(r'\bin windows\b', 'in counters'), (r'\brollups\b', 'daily_totals'), (r'\bwindows\b', 'counters'),
         (r'\banswers\b(?= \(|, \.|$)', 'stored_responses'), (r'\bdeferred\b(?=\.)', 'deferrals'), (r'holds\.counts', 'holds.reservations')]
# Differences that the squash means to have.
INTENDED = [
 # Each partition has a unique index, as EnsureYears makes it; the first one had a constraint.
 'ALTER TABLE ONLY public.deliveries_y2026 ADD UNIQUE (webhook_id, event_id)',
 'CREATE UNIQUE INDEX ON public.deliveries_y2026 USING btree (webhook_id, event_id)',
]
# On PostgreSQL the migration 0072 left a record of kind found any amount but zero; on SQLite it is above zero, as the
# rules make it. Both have that now.
STRICTER = (" WHEN 'found'::text THEN (amount_mc > 0)", '')

AREAS = [
 ('people', 'accounts sessions security_events erasures identity_links totp_seeds recovery_codes passkeys passkey_challenges '
            'openid_attempts openid_logins invitations mails'),
 ('apps', 'apps app_logos app_logo_proposals app_members app_invitations features provider_keys golive_requests '
          'margin_changes margin_notices oauth_codes oauth_device_codes oauth_tokens oauth_replays consent_counts '
          'work_consents app_spend watch_turns notices'),
 ('webhooks', 'webhooks webhook_days events event_log event_log_head deliveries delivery_attempts'),
 ('ledger', 'balances connections allocation_requests children freezes stops holds deferrals ledger settlements '
            'goodwill_records call_refunds unbilled_attempts counters daily_totals app_days app_days_head refusals'),
 ('payments', 'checkouts auto_topups payment_records stripe_events stripe_requests stripe_refunds refunds disputes '
              'open_disputes card_removals customer_removals paying_cards payees margin_records losses '
              'reconciliations'),
 ('gateway', 'nodes stored_responses checkpoints estimates realtime_sessions realtime_replies health incidents'),
 ('log', 'log_state log_accounts log_rows log_tiles log_calls'),
 ('operator', 'settings policies price_lists operator_log verifications operator_days operator_balances operator_totals'),
]
TITLES = {'people': 'People: accounts, sign-in and mail.', 'apps': 'Apps: who may do what, and what users have allowed.',
 'webhooks': 'Events and webhooks.', 'ledger': 'Money: balances, connections, holds and the ledger.',
 'payments': 'Payments: top-ups, refunds, disputes and payouts.', 'gateway': 'Calls, voice sessions, and how the service fares.',
 'log': 'The public log of the ledger.', 'operator': 'What operators set, do and see.'}

def rename(table): return TABLES.get(table, table)
def renamed_index(name):
    for old, new in TABLES.items():
        if name == old or name.startswith(old + '_'): return new + name[len(old):]
    return name

def migrate_names_sqlite(c):
    idx = c.execute("select name, tbl_name from sqlite_master where type='index' and sql is not null").fetchall()
    for (t, old), new in COLUMNS.items(): c.execute('ALTER TABLE %s RENAME COLUMN %s TO %s' % (t, old, new))
    for old, new in TABLES.items(): c.execute('ALTER TABLE %s RENAME TO %s' % (old, new))
    for name, _ in idx:
        new = renamed_index(name)
        if new != name:
            (sql,) = c.execute('select sql from sqlite_master where name=?', (name,)).fetchone()
            c.execute('DROP INDEX ' + name)
            c.execute(re.sub(r'\b%s\b' % name, new, sql, count=1))

def migrate_names_postgres(url):
    sql = []
    for (t, old), new in COLUMNS.items(): sql.append('ALTER TABLE %s RENAME COLUMN %s TO %s;' % (t, old, new))
    for (t, old), new in ATTRIBUTES.items(): sql.append('ALTER TYPE %s RENAME ATTRIBUTE %s TO %s;' % (t, old, new))
    for old, new in TYPES.items(): sql.append('ALTER TYPE %s RENAME TO %s;' % (old, new))
    for r in psql(url, "select relname, relkind from pg_class where relnamespace='public'::regnamespace and relkind in ('r','p','i','I')", '-At').split():
        name, kind = r.split('|')
        new = renamed_index(name)
        if new != name: sql.append('ALTER %s %s RENAME TO %s;' % ('TABLE' if kind in 'rp' else 'INDEX', name, new))
    for r in psql(url, "select conrelid::regclass, conname from pg_constraint where connamespace='public'::regnamespace and contype in ('c','f') and conislocal and coninhcount = 0", '-At').split():
        table, name = r.split('|')
        new = renamed_index(name)
        if new != name: sql.append('ALTER TABLE %s RENAME CONSTRAINT %s TO %s;' % (renamed_index(table), name, new))
    psql(url, '\n'.join(sql))

# --- reading

def split_top(body):
    parts, depth, cur, quote = [], 0, '', False
    for ch in body:
        if ch == "'": quote = not quote
        if not quote:
            if ch == '(': depth += 1
            elif ch == ')': depth -= 1
            elif ch == ',' and depth == 0:
                parts.append(cur); cur = ''; continue
        cur += ch
    if cur.strip(): parts.append(cur)
    return [re.sub(r'\s+', ' ', p).strip() for p in parts]

def strip_comments(sql): return re.sub(r'--[^\n]*', '', sql)

def parse_table(sql):
    sql = strip_comments(sql).replace('"', '')
    head, body = sql[:sql.index('(')], sql[sql.index('(') + 1:sql.rindex(')')]
    tail = sql[sql.rindex(')') + 1:].strip()
    return split_top(body), tail

def read_comments(folder):
    """(table, column) -> comment; table -> comment before; index -> comment before, by the names of the migrations."""
    cols, heads = {}, {}
    for f in files(folder):
        lines = open(f).read().split('\n')
        table, before = None, []
        for raw in lines:
            l = re.sub(r'^-- (?:sqlite|postgres): ?', '', raw)
            if raw.startswith('-- +goose'): before = []; continue
            if table is None and raw.startswith('-- ') and not re.match(r'-- (sqlite|postgres):', raw):
                before.append(raw); continue
            m = re.match(r'CREATE TABLE (?:IF NOT EXISTS )?(\w+)(?:_new)? \(', l)
            if m:
                table = re.sub('_new$', '', m.group(1))
                if before: heads[table] = before
                before = []; last = None; continue
            if table:
                if re.match(r'\)', l): table = None; before = []; continue
                m = re.match(r'\s+(\w+)\s', l)
                k = l.find('-- ')
                if l.strip().startswith('--') and last: cols[(table, last)] = cols.get((table, last), []) + [l.strip()[3:]]
                elif m and m.group(1).islower():
                    last = m.group(1)
                    if k >= 0: cols[(table, last)] = [l[k + 3:].strip()]
                else: last = None
                continue
            m = re.match(r'ALTER TABLE (\w+) ADD COLUMN (\w+)', l)
            if m:
                k = l.find('; -- ')
                text = [l[k + 5:].strip()] if k >= 0 else [b[3:] for b in before]
                if text: cols[m.groups()] = text
                if k >= 0: before = []
                continue
            m = re.match(r'CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)', l)
            if m:
                if before: heads[m.group(1)] = before
                before = []; continue
            if not raw.strip(): before = []
            elif not raw.startswith('--'): before = []
    return cols, heads

# --- writing

def wrap_comment(text, first, indent):
    return text

def words(text):
    for a, b in WORDS: text = re.sub(a, b, text)
    return text

def write_table(name, old, items, tail, cols, heads, out):
    renames = {n: o for (t, o), n in COLUMNS.items() if t == old}
    for line in heads.get(old, []):
        out += ['-- ' + w.strip() for w in re.findall(r'.{1,116}(?:\s|$)', words(line)[3:])]
    out.append('CREATE TABLE %s (' % name)
    is_col = lambda i: not re.match(r'(PRIMARY KEY|UNIQUE|CHECK|FOREIGN KEY|CONSTRAINT)\b', i)
    width = max([len(i.split(' ')[0]) for i in items if is_col(i)] + [0])
    part, before = PARTITIONED.get(name), None
    for n, i in enumerate(items):
        comma = ',' if n < len(items) - 1 else ''
        if not is_col(i):
            unique = part and i.startswith('UNIQUE')
            if unique: # each partition has it
                if not comma: # the line before has ended with a comma
                    last = out[-1]
                out.append('-- sqlite:   ' + i + comma)
            else: out.append('  ' + i + comma)
            continue
        col, rest = i.split(' ', 1)
        line = '  %s %s%s' % (col.ljust(width), rest, comma)
        comment = cols.get((old, renames.get(col, col)))
        if comment and comment == before and len(comment) + len(comment[0]) > 60: comment = None # one for several columns
        else: before = comment
        note = words(' '.join(comment)) if comment else ''
        if part and col == part[0]:
            out.append('-- sqlite: ' + line + ('   -- ' + note if note else ''))
            out.append('-- postgres: ' + '  %s %s%s' % (col.ljust(width), rest.replace('TEXT', 'TEXT COLLATE "C"', 1), comma))
            continue
        if note and len(line) + len(note) > 112:
            for w in re.findall(r'.{1,110}(?:\s|$)', note): out.append('  -- ' + w.strip())
            out.append(line)
        else: out.append(line.ljust(47) + (' -- ' + note if note else '') if note else line)
    if part:
        # a trailing comma before a line that PostgreSQL does not have
        k = len(out) - 1
        if out[k].startswith('-- sqlite:   UNIQUE'):
            j = k - 1
            plain = re.sub(r',(\s*(?:--.*)?)$', r'\1', out[j])
            out[j:k + 1] = ['-- sqlite: ' + out[j], '-- sqlite: ' + out[k][len('-- sqlite: '):], '-- postgres: ' + plain]
        out += [')', '-- postgres: PARTITION BY RANGE (%s)' % part[0], ';']
    elif 'WITHOUT ROWID' in tail: out += [')', '-- sqlite: WITHOUT ROWID', ';']
    else: out.append(');')

def generate(folder, out_dir, pg_old):
    c = sqlite_db(folder)
    cols, heads = read_comments(folder)
    migrate_names_sqlite(c)
    back = {v: k for k, v in TABLES.items()}
    tables = {n: s for n, s in c.execute("select name, sql from sqlite_master where type='table' and name not like 'sqlite_%'")}
    placed = [t for _, list_ in AREAS for t in list_.split()]
    if set(placed) != set(tables): raise SystemExit('areas: %s' % sorted(set(placed) ^ set(tables)))
    indexes = collections.defaultdict(list)
    for n, t, s in c.execute("select name, tbl_name, sql from sqlite_master where type='index' and sql is not null order by rowid"):
        indexes[t].append((n, s.replace('"', '')))
    pg_idx = collections.defaultdict(list)
    for r in psql(pg_old, "select c.relname, t.relname, pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid=i.indexrelid join pg_class t on t.oid=i.indrelid where t.relnamespace='public'::regnamespace and not t.relispartition and not exists (select 1 from pg_constraint k where k.conindid=i.indexrelid) order by c.oid", '-At').strip().split('\n'):
        n, t, d = r.split('|')
        pg_idx[t].append((n, re.sub(r'ON (ONLY )?public\.', 'ON ', d.replace(' USING btree', ''))))
    triggers = collections.defaultdict(list)
    for t, s in c.execute("select tbl_name, sql from sqlite_master where type='trigger' order by rowid"): triggers[t].append(s.replace('"',''))
    functions = {n: re.sub(r'\s+', ' ', d).strip() for n, d in
        (r.split('|', 1) for r in psql(pg_old, "select proname, replace(pg_get_functiondef(oid), E'\\n', ' ') from pg_proc where pronamespace='public'::regnamespace", '-At').strip().split('\n'))}
    pg_triggers = collections.defaultdict(list)
    for r in psql(pg_old, "select tgrelid::regclass, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal order by oid", '-At').strip().split('\n'):
        t, d = r.split('|', 1); pg_triggers[t].append(d.replace('public.', ''))
    types = psql(pg_old, "select t.typname, string_agg(a.attname || ' ' || upper(format_type(a.atttypid, null)), ', ' order by attnum) from pg_type t join pg_class c on c.oid=t.typrelid join pg_attribute a on a.attrelid=c.oid and attnum > 0 and not attisdropped where c.relkind='c' group by c.oid, t.typname order by c.oid", '-At').strip().split('\n')
    rows = collections.defaultdict(list) # rows that every database begins with
    for t in tables:
        names = [r[1] for r in c.execute('pragma table_info(%s)' % t)]
        for r in c.execute('select * from %s' % t):
            rows[t].append('INSERT INTO %s (%s) VALUES (%s);' % (t, ', '.join(names), ', '.join('NULL' if v is None else str(v) if isinstance(v, int) else "'%s'" % v for v in r)))
    os.makedirs(out_dir, exist_ok=True)
    for f in files(out_dir): os.remove(f)
    for n, (area, list_) in enumerate(AREAS, 1):
        out = ['-- +goose Up', '', '-- ' + TITLES[area], '']
        for t in list_.split():
            old = back.get(t, t)
            items, tail = parse_table(tables[t])
            write_table(t, old, items, tail, cols, heads, out)
            mine = {renamed_index(k): v for k, v in heads.items()}
            pg_names = {i for i, _ in pg_idx[t]}
            for name, sql in indexes[t]:
                for line in mine.get(name, []): out.append(words(line))
                out.append(('' if name in pg_names else '-- sqlite: ') + sql + ';')
            for name, sql in pg_idx[t]:
                if name not in {i for i, _ in indexes[t]}:
                    for line in mine.get(name, []): out.append(words(line))
                    out.append('-- postgres: ' + sql + ';')
            if t in PARTITIONED:
                unique = [re.search(r'\((.*)\)', s).group(1) for _, s in indexes[t] if s.startswith('CREATE UNIQUE')]
                label = [i for i, s in indexes[t] if s.startswith('CREATE UNIQUE')]
                unique += [re.search(r'\((.*)\)', i).group(1) for i in items if i.startswith('UNIQUE')]
                suffix = 'chain' if label else 'events'
                first = t + '_y2026'
                out.append("-- postgres: CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (MINVALUE) TO ('%s');" % (first, t, PARTITIONED[t][1] + BOUND))
                out.append('-- postgres: CREATE TABLE %s_default PARTITION OF %s DEFAULT;' % (t, t))
                for u in unique:
                    for p in (first, t + '_default'):
                        out.append('-- postgres: CREATE UNIQUE INDEX %s_%s ON %s (%s);' % (p, suffix, p, u))
            for s in triggers[t]:
                out += ['-- +goose StatementBegin', '-- sqlite: ' + s + ';', '-- +goose StatementEnd']
            for d in pg_triggers[t]:
                fn = re.search(r'EXECUTE FUNCTION (\w+)', d).group(1)
                if fn.startswith(('ledger_is', 'payment_records_is')): continue # package db makes these
                if fn in functions:
                    body = re.sub(r'CREATE OR REPLACE FUNCTION public\.', 'CREATE FUNCTION ', functions.pop(fn)).replace('$function$', '$$')
                    out += ['-- +goose StatementBegin', '-- postgres: ' + body + ';', '-- +goose StatementEnd']
                out.append('-- postgres: ' + d + ';')
            out += rows[t]
            out.append('')
        if area == 'ledger':
            out.append('-- The rows of the writer\'s statements (decision 015).')
            for r in types:
                name, attrs = r.split('|')
                line = 'CREATE TYPE %s AS (' % name
                out.append('-- postgres: ' + line)
                cur = ' '
                parts = attrs.split(', ')
                for k, a in enumerate(parts):
                    a += ',' if k < len(parts) - 1 else ''
                    if len(cur) + len(a) > 100: out.append('-- postgres: ' + cur); cur = ' '
                    cur += ' ' + a
                out += ['-- postgres: ' + cur, '-- postgres: );']
            out.append('')
        open(os.path.join(out_dir, '%04d_%s.sql' % (n, area)), 'w').write('\n'.join(out).rstrip('\n') + '\n')

# --- comparing

def tokens(sql): return ' '.join(re.findall(r"'[^']*'|\w+|[^\s\w]", strip_comments(sql).replace('"', ''))).lower()

def catalogue_sqlite(c):
    out = {}
    for kind, name, sql in c.execute("select type, name, sql from sqlite_master where sql is not null and name not like 'sqlite_%'"):
        if kind == 'table':
            items, tail = parse_table(sql)
            out[kind, name] = [tokens(i) for i in items] + [tokens(tail)]
            out['columns', name] = [tuple(r[1:]) for r in c.execute('pragma table_xinfo(%s)' % name)]
            out['rows', name] = sorted(map(repr, c.execute('select * from %s' % name)))
        else: out[kind, name] = tokens(sql)
    return out

def catalogue_postgres(url):
    dump = subprocess.run(['pg_dump', url, '-s', '--no-owner', '--no-comments'], capture_output=True, text=True, check=True).stdout
    dump = '\n'.join(l for l in dump.split('\n') if not l.startswith(('--', 'SET ', '\\', 'SELECT pg_catalog')))
    out = []
    for s in re.split(r';\s*\n', dump):
        s = re.sub(r'\s+', ' ', s).strip()
        s = s.replace(' COLLATE pg_catalog."C"', '').replace(' COLLATE "C"', '')
        if s: out.append(s)
    rows = []
    for t in psql(url, "select relname from pg_class where relnamespace='public'::regnamespace and relkind in ('r','p') order by 1", '-At').split():
        rows.append(t + ' ' + psql(url, 'select * from %s' % t, '-At'))
    return sorted(out), rows

# Names that PostgreSQL makes, and nothing refers to.
def plain(s):
    s = re.sub(r'CONSTRAINT \w+ ', '', s)
    s = re.sub(r'CREATE (UNIQUE )?INDEX \w+_(default|y2026)_\w+ ON', r'CREATE \1INDEX ON', s)
    return re.sub(r'ATTACH PARTITION public\.(\w+?_(?:default|y2026))_\w+', r'ATTACH PARTITION public.\1 index', s)

def compare(a, b, what):
    bad = 0
    for k in sorted(set(a) | set(b)):
        if a.get(k) != b.get(k):
            bad += 1
            print('%s %s\n   old %s\n   new %s' % (what, k, a.get(k), b.get(k)))
    return bad

def main():
    folder, out_dir = sys.argv[1], sys.argv[2]
    base = sys.argv[3]
    old = pg_db(base, 'd_squash_old', folder)
    migrate_names_postgres(old)
    generate(folder, out_dir, old)
    new = pg_db(base, 'd_squash_new', out_dir)
    c = sqlite_db(folder); migrate_names_sqlite(c)
    a, b = catalogue_sqlite(c), catalogue_sqlite(sqlite_db(out_dir))
    bad = compare(a, b, 'sqlite')
    print('sqlite: %d objects compared, %d differ' % (len(a), bad))
    (pa, ra), (pb, rb) = catalogue_postgres(old), catalogue_postgres(new)
    ca, cb = collections.Counter(map(plain, pa)), collections.Counter(map(plain, pb))
    fix = lambda c: collections.Counter({k.replace(*STRICTER) if 'margin_records' in k else k: v for k, v in c.items() if k not in INTENDED})
    ca, cb = fix(ca), fix(cb)
    for s in sorted((ca - cb)): print('postgres, only old: ' + s[:3000])
    for s in sorted((cb - ca)): print('postgres, only new: ' + s[:3000])
    names = sorted(set(pa) ^ set(pb))
    n = len(list((ca - cb).elements())) + len(list((cb - ca).elements())) + (ra != rb)
    print('postgres: %d statements of pg_dump -s compared, %d differ; %d differ in names that PostgreSQL made' % (len(pa), n, len(names)))
    for s in names[:400]: print('  name: ' + s[:170]) if '-v' in sys.argv else None
    psql(base, 'DROP DATABASE d_squash_old;\nDROP DATABASE d_squash_new;')
    sys.exit(1 if bad or n else 0)
main()
