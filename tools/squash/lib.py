import os,re,sqlite3,subprocess,glob
def text_of(path,engine):
    t=open(path).read()
    return t.replace('\n-- %s: '%engine,'\n')
def strip_goose(t):
    return '\n'.join(l for l in t.split('\n') if not l.startswith('-- +goose'))
def files(d): return sorted(glob.glob(os.path.join(d,'*.sql')))
def sqlite_db(d):
    c=sqlite3.connect(':memory:'); c.isolation_level=None
    for f in files(d):
        t=strip_goose(text_of(f,'sqlite'))
        if '0065' in f: continue # moves rows only, by an aggregate that Python's SQLite lacks
        try: c.executescript(t)
        except Exception as e: raise SystemExit('%s: %s'%(f,e))
    return c
def psql(url,sql,*args):
    p=subprocess.run(['psql',url,'-qX','-v','ON_ERROR_STOP=1',*args],input=sql,text=True,capture_output=True)
    if p.returncode: raise SystemExit(p.stderr)
    return p.stdout
def pg_db(base,name,d):
    psql(base,'DROP DATABASE IF EXISTS "%s";\nCREATE DATABASE "%s" TEMPLATE template0 LC_COLLATE \'C\' LC_CTYPE \'C.UTF-8\';'%(name,name))
    url=re.sub(r'postgres://([^/]*)/[^?]*',r'postgres://\1/'+name,base)
    for f in files(d):
        t=text_of(f,'postgres')
        nt='NO TRANSACTION' in t
        p=subprocess.run(['psql',url,'-qX','-v','ON_ERROR_STOP=1']+([] if nt else ['-1']),input=strip_goose(t),text=True,capture_output=True)
        if p.returncode: raise SystemExit(f+': '+p.stderr)
    return url
