-- +goose Up

-- What a user spends on an app of tier limited-live in 24 hours, and what empty answers of the user were free there,
-- is counted by app and account. It was counted by connection, so that connecting again began a new day (decisions 024,
-- 112). The order of buckets and two buckets of one time do not matter: counters add them up.
INSERT INTO windows (subject, buckets, held, told)
  SELECT 'spend/' || c.app_id || '/' || c.account_id, string_agg(c.spent, ' ' ORDER BY c.created_us), 0, 0
  FROM connections c JOIN apps a ON a.id = c.app_id
  WHERE a.tier = 'limited-live' AND c.spent <> ''
  GROUP BY c.app_id, c.account_id;
INSERT INTO windows (subject, buckets, held, told)
  SELECT 'waived/' || c.app_id || '/' || c.account_id, string_agg(w.buckets, ' ' ORDER BY c.created_us), 0, 0
  FROM windows w JOIN connections c ON w.subject = 'waived/' || c.id
  WHERE w.buckets <> ''
  GROUP BY c.app_id, c.account_id;
UPDATE windows SET buckets = '' WHERE subject LIKE 'waived/conn%';
