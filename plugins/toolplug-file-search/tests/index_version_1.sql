-- An index as version 1 of the tables kept it: one file of the tenant t1, in one vector store.
CREATE TABLE corpora (
    number INTEGER PRIMARY KEY,
    tenant TEXT UNIQUE          -- NULL: the operator's files
);
CREATE TABLE stores (
    place INTEGER PRIMARY KEY AUTOINCREMENT,    -- order of listing
    id TEXT NOT NULL UNIQUE,
    corpus INTEGER NOT NULL REFERENCES corpora,
    name TEXT NOT NULL,
    metadata TEXT NOT NULL,     -- JSON
    created_at INTEGER NOT NULL
);
CREATE TABLE files (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    corpus INTEGER NOT NULL REFERENCES corpora,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    content BLOB,               -- NULL: stays where the operator has it
    fingerprint TEXT NOT NULL,  -- SHA-256 of the content
    modified_ns INTEGER,        -- of the operator's file
    created_at INTEGER NOT NULL,
    chunks INTEGER NOT NULL DEFAULT 0           -- in the index, 0 where it is not searchable
);
CREATE INDEX files_of_corpus ON files (corpus, name);
CREATE TABLE members (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    store_id TEXT NOT NULL REFERENCES stores (id) ON DELETE CASCADE,
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    attributes TEXT NOT NULL,   -- JSON
    created_at INTEGER NOT NULL,
    UNIQUE (store_id, file_id)
);
CREATE INDEX members_of_file ON members (file_id);
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,   -- rowid of the full-text table
    file_id TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL
);
CREATE INDEX chunks_of_file ON chunks (file_id);
CREATE VIRTUAL TABLE passages_1 USING fts5 (
    name, headings, text, tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO corpora VALUES (1, 't1');
INSERT INTO stores VALUES (1, 'vs_old', 1, '', '{}', 1700000000);
INSERT INTO files VALUES (1, 'file-old', 1, 'old.txt', 'assistants', 13, 'the old river', 'x', NULL, 1700000000, 1);
INSERT INTO members VALUES (1, 'vs_old', 'file-old', '{}', 1700000000);
INSERT INTO chunks VALUES (1, 'file-old', 0, 13, 1, 1);
INSERT INTO passages_1 (rowid, name, headings, text) VALUES (1, 'old.txt', '', 'the old river');
PRAGMA user_version = 1;
