-- A database of revision 0001 as sqlite3's dump gives it, with what a dump leaves out.
PRAGMA application_id = 1213355080;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE conversations (
	"key" INTEGER NOT NULL, 
	conversation_id TEXT NOT NULL, 
	person TEXT NOT NULL, 
	title TEXT NOT NULL, 
	is_titled_by_person BOOLEAN NOT NULL, 
	settings TEXT NOT NULL, 
	is_pinned BOOLEAN NOT NULL, 
	is_archived BOOLEAN NOT NULL, 
	created_s FLOAT NOT NULL, 
	updated_s FLOAT NOT NULL, 
	deleted_s FLOAT, 
	active_root_key INTEGER, 
	PRIMARY KEY ("key"), 
	UNIQUE (conversation_id)
);
INSERT INTO "conversations" VALUES(1,'conv-garden','ann','Plants for the garden',1,'{"system_prompt": "Be brief.", "temperature": 0.3, "top_p": 0.9, "top_k": 40, "min_p": 0.0, "max_tokens": 256, "repetition_penalty": 1.1, "seed": 11}',1,0,1700000000.0,1700000300.0,NULL,1);
INSERT INTO "conversations" VALUES(2,'conv-archived','ann','Tax letter',0,'{}',0,1,1700001000.0,1700001100.0,NULL,8);
INSERT INTO "conversations" VALUES(3,'conv-bob','bob','学习中文',0,'{}',0,0,1700002000.0,1700002100.0,NULL,10);
INSERT INTO "conversations" VALUES(4,'conv-deleted','ann','Deleted one',0,'{}',0,0,1700003000.0,1700003000.0,1700003500.0,12);
CREATE TABLE messages (
	"key" INTEGER NOT NULL, 
	message_id TEXT NOT NULL, 
	conversation_key INTEGER NOT NULL, 
	parent_key INTEGER, 
	active_child_key INTEGER, 
	role TEXT NOT NULL, 
	state TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	created_s FLOAT NOT NULL, 
	deleted_s FLOAT, 
	is_erased BOOLEAN NOT NULL, 
	facts TEXT, 
	cut TEXT, 
	text TEXT NOT NULL, 
	PRIMARY KEY ("key"), 
	UNIQUE (message_id), 
	FOREIGN KEY(conversation_key) REFERENCES conversations ("key") ON DELETE CASCADE, 
	FOREIGN KEY(parent_key) REFERENCES messages ("key")
);
INSERT INTO "messages" VALUES(1,'g-q1',1,NULL,3,'user','done',1,1700000000.0,NULL,0,NULL,NULL,'Which plants like shade?');
INSERT INTO "messages" VALUES(2,'g-a1',1,1,NULL,'assistant','done',3,1700000010.0,NULL,0,'{"finish_reason": "stop", "num_output_tokens": 12, "ttft_s": 0.4}',NULL,'Ferns and hostas like shade.');
INSERT INTO "messages" VALUES(3,'g-a1b',1,1,4,'assistant','stopped',2,1700000020.0,NULL,0,NULL,NULL,'Ivy, and lily of the val');
INSERT INTO "messages" VALUES(4,'g-q2',1,3,5,'user','done',1,1700000100.0,NULL,0,NULL,'{"first_message_id": "g-q2", "num_left_out": 2, "summary": "They want shade plants."}','And which ones like the sun?');
INSERT INTO "messages" VALUES(5,'g-a2',1,4,NULL,'assistant','interrupted',2,1700000110.0,NULL,0,NULL,NULL,'Lavender; it''s ''sun-loving''');
INSERT INTO "messages" VALUES(6,'g-q2x',1,2,7,'user','done',1,1700000200.0,NULL,0,NULL,NULL,'How often do ferns need water?');
INSERT INTO "messages" VALUES(7,'g-a2x',1,6,NULL,'assistant','writing',9,1700000210.0,NULL,0,NULL,NULL,'Ferns need water twice');
INSERT INTO "messages" VALUES(8,'t-q1',2,NULL,9,'user','done',1,1700001000.0,NULL,0,NULL,NULL,'Write a letter to the tax office.
Polite, please.');
INSERT INTO "messages" VALUES(9,'t-a1',2,8,NULL,'assistant','done',2,1700001010.0,1700001050.0,0,'{"finish_reason": "stop", "num_output_tokens": 12, "ttft_s": 0.4}',NULL,'Dear Sir or Madam (deleted)');
INSERT INTO "messages" VALUES(10,'b-q1',3,NULL,11,'user','done',1,1700002000.0,NULL,0,NULL,NULL,'怎么学习中文?');
INSERT INTO "messages" VALUES(11,'b-a1',3,10,NULL,'assistant','done',2,1700002010.0,NULL,0,'{"finish_reason": "stop", "num_output_tokens": 12, "ttft_s": 0.4}',NULL,'每天读一点。😀');
INSERT INTO "messages" VALUES(12,'d-q1',4,NULL,NULL,'user','done',1,1700003000.0,NULL,0,NULL,NULL,'Secret of the deleted conversation');
CREATE TABLE secrets (
	name TEXT NOT NULL, 
	value BLOB NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "secrets" VALUES('cookie',X'000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F');
CREATE INDEX ix_conversations_person ON conversations (person, updated_s);
CREATE INDEX ix_conversations_deleted ON conversations (deleted_s) WHERE deleted_s IS NOT NULL;
CREATE INDEX ix_messages_tree ON messages (conversation_key, parent_key, active_child_key, deleted_s, message_id);
CREATE INDEX ix_messages_parent ON messages (parent_key);
CREATE INDEX ix_messages_writing ON messages (conversation_key) WHERE state = 'writing';
CREATE INDEX ix_messages_deleted ON messages (deleted_s) WHERE deleted_s IS NOT NULL;
COMMIT;
