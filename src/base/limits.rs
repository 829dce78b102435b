//! Every bound in one place: its unit is in the name, its policy in the comment.

/// Longest identifier, in bytes. Longer: refused as `invalid_params`.
pub const ID_LEN_MAX: usize = 128;

// The agent link (protocols page, section 1).

/// Largest JSON body of a link frame. Longer: the link closes with `frame_too_large`.
pub const LINK_BODY_LEN_MAX: usize = 16 * 1024 * 1024;
/// Largest body of a Data frame, its kind byte included. Longer: the link closes with `frame_too_large`.
pub const LINK_DATA_LEN_MAX: usize = 32 * 1024 + 1;
/// Largest result sent inline on protocol 2; beyond it a channel carries the bytes.
pub const LINK_INLINE_RESULT_LEN_MAX: usize = 64 * 1024;
/// A channel's first credit in body bytes.
pub const CHANNEL_CREDIT_FIRST: usize = 32 * 1024;
/// A channel's largest credit.
pub const CHANNEL_CREDIT_MAX: usize = 1024 * 1024;
/// A channel's credit is never more than this many milliseconds of its measured drain.
pub const CHANNEL_DRAIN_MAX_MS: u64 = 250;
/// Open channels per link. More: `too_many_channels`.
pub const CHANNELS_OPEN_MAX: usize = 256;
/// Outgoing frames queued per link, control first. Full: the sender waits.
pub const LINK_SEND_QUEUE_LEN_MAX: usize = 1024;
/// Requests in flight per link and direction. More: `busy`.
pub const LINK_REQUESTS_IN_FLIGHT_MAX: usize = 1024;
/// Notices that wait for their reader. Full: the link's reader waits.
pub const LINK_NOTICES_LEN_MAX: usize = 1024;
/// From a decision to close a link until its socket is closed, whatever the peer does.
pub const LINK_CLOSE_MS: u64 = 1_000;
/// An unenrolled key may send one `agent.enroll` of this many bytes …
pub const ENROLL_LEN_MAX: usize = 4 * 1024;
/// … within this time.
pub const ENROLL_TIMEOUT_MS: u64 = 5_000;
/// An invitation's life.
pub const INVITE_LIFE_MS: i64 = 15 * 60 * 1000;
/// Protocol 2 heartbeat period; dead after `HEARTBEATS_MISSED_MAX` of them.
pub const HEARTBEAT_MS: u64 = 10_000;
pub const HEARTBEATS_MISSED_MAX: u32 = 3;
/// How often the host's figures are read.
pub const RESOURCES_PERIOD_MS: u64 = 10_000;
/// Least time between two heartbeats, however often the current task changes.
pub const HEARTBEAT_PAUSE_MS: u64 = 1_000;
/// Protocol 1 heartbeat period and silence until dead.
pub const HEARTBEAT_V1_MS: u64 = 30_000;
pub const SILENCE_V1_MAX_MS: u64 = 90_000;
/// Reconnect delay: first, doubling up to the last, with full jitter.
pub const RECONNECT_FIRST_MS: u64 = 1_000;
pub const RECONNECT_MAX_MS: u64 = 60_000;
/// A link this old resets the delay.
pub const LINK_HEALTHY_AFTER_MS: u64 = 30_000;
/// How long the server waits for the old connection of a key that connects again.
pub const DUPLICATE_PROBE_MS: u64 = 3_000;
/// Two instances alternating twice within this time are quarantined.
pub const DUPLICATE_WINDOW_MS: i64 = 10 * 60 * 1000;
/// The agent's patience for a registration's ack; the server may probe an old link meanwhile.
pub const REGISTER_TIMEOUT_MS: u64 = 15_000;
/// Registrations remembered per agent to tell rivals from restarts.
pub const DUPLICATE_HISTORY_LEN_MAX: usize = 8;
/// Registrations that a server admits a second, and at once. More: `busy` with the time to wait.
pub const REGISTRATIONS_PER_SECOND: u64 = 100;
pub const REGISTRATION_BURST: u64 = 200;
/// From the first byte of a connection until its registration, handshake included.
pub const LINK_OPEN_TIMEOUT_MS: u64 = 5_000;
/// After a failed accept a listener rests this long.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Connections that are not registered yet. More: closed at once.
pub const LINKS_OPENING_MAX: usize = 512;
/// `agent.enroll` tries and wrong tokens of one address in the window. More: `rate_limited`.
pub const ENROLL_TRIES_MAX: u32 = 10;
pub const ENROLL_WINDOW_MS: i64 = 60_000;
/// Addresses whose tries are remembered. Full: the oldest are forgotten.
pub const ENROLL_ADDRESSES_MAX: usize = 4_096;
/// Records sent to the server and not acknowledged yet. Full: sending waits.
pub const EVENTS_UNACKED_LEN_MAX: usize = 256;
/// Records that the server stores in one step.
pub const EVENTS_BATCH_LEN_MAX: usize = 256;
/// An advertised list of capabilities. Longer: cut, the rest is not shown.
pub const CAPABILITIES_LEN_MAX: usize = 256;
/// A protocol-1 peer's answer to its challenge.
pub const CHALLENGE_TIMEOUT_MS: u64 = 5_000;
/// Default time for a command of the kind named.
pub const RUN_SCRIPT_TIMEOUT_MS: u64 = 30_000;
pub const COMMAND_TIMEOUT_MS: u64 = 10_000;
pub const SCREENSHOT_TIMEOUT_MS: u64 = 30_000;
/// Inline script source. Longer: `script_too_large`.
pub const SCRIPT_SOURCE_LEN_MAX: usize = 1024 * 1024;

// Local IPC (section 2).

/// Largest envelope; zero or more closes the connection.
pub const IPC_BODY_LEN_MAX: usize = 10 * 1024 * 1024;
/// Clients at once. More: refused with `too_many_clients`.
pub const IPC_CLIENTS_MAX: usize = 64;
/// Requests in flight per client. More: the reader waits.
pub const IPC_REQUESTS_IN_FLIGHT_MAX: usize = 64;
/// Bytes that a client may send ahead while it has `IPC_REQUESTS_IN_FLIGHT_MAX` requests in flight.
pub const IPC_READ_AHEAD_LEN_MAX: usize = 64 * 1024;
/// Bytes waiting for a client beyond which no more events, bytes or requests are taken up for it.
pub const IPC_SEND_BUFFER_LEN_MAX: usize = 256 * 1024;
/// From an agent's stop to the end of its local connections, for answers under way.
pub const IPC_FLUSH_MS: u64 = 1_000;
/// Before accepting again after a client could not be accepted.
pub const IPC_ACCEPT_PAUSE_MS: u64 = 100;
/// Calls queued in a local client. Full: the caller waits.
pub const IPC_CLIENT_QUEUE_LEN_MAX: usize = 64;
/// Records queued between a stream of events and its reader. Full: the stream waits.
pub const EVENT_STREAM_QUEUE_LEN_MAX: usize = 256;
/// `events.drain` when it does not say.
pub const EVENTS_DRAIN_DEFAULT: usize = 500;
pub const EVENTS_DRAIN_MAX: usize = 10_000;
/// Records looked through for the last ones of one type.
pub const EVENTS_TAIL_SEARCH_MAX: u64 = 100_000;
/// From connecting to an agent's first answer; then it counts as unavailable.
pub const IPC_HELLO_TIMEOUT_MS: u64 = 10_000;
/// Volatile events kept for readers. Full: `log.line` is dropped first, then the oldest; counted.
pub const VOLATILE_EVENTS_LEN_MAX: usize = 1_000;
/// A log line is cut here, in characters, and marked.
pub const LOG_LINE_CHARS_MAX: usize = 4_096;

// HTTP (section 3).

pub const HTTP_BODY_LEN_MAX: usize = 2 * 1024 * 1024;
pub const HTTP_CONNECTIONS_MAX: usize = 1_024;
/// To reach a server, TLS included.
pub const HTTP_CONNECT_TIMEOUT_MS: u64 = 10_000;
/// What a client waits beyond a method's own time before it gives up.
pub const HTTP_EXTRA_PATIENCE_MS: u64 = 15_000;
pub const TICKET_LIFE_MS: i64 = 60_000;
pub const SESSION_LIFE_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// Login tries per account and address in the window, then a block.
pub const LOGIN_TRIES_MAX: u32 = 5;
pub const LOGIN_WINDOW_MS: i64 = 15 * 60 * 1000;
pub const LOGIN_BLOCK_MS: i64 = 30 * 60 * 1000;
pub const PAGE_SIZE_DEFAULT: u32 = 20;
pub const PAGE_SIZE_MAX: u32 = 100;

// The journal.

/// A record longer than this is refused as `event_too_large`.
pub const JOURNAL_RECORD_LEN_MAX: usize = 256 * 1024;
/// A segment is closed once it has passed this length.
pub const JOURNAL_SEGMENT_LEN: u64 = 16 * 1024 * 1024;
/// Closed segments are deleted, oldest first, past this total.
pub const JOURNAL_TOTAL_LEN_MAX: u64 = 256 * 1024 * 1024;
/// Appends waiting for the writer. Full: the caller waits.
pub const JOURNAL_QUEUE_LEN_MAX: usize = 4_096;
/// The same in bytes, and so the length of one group that the writer commits. Full: the caller waits.
pub const JOURNAL_QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The newest records kept in memory for followers, in bytes. Older ones are read from disk.
pub const JOURNAL_TAIL_BYTES_MAX: usize = 1024 * 1024;
/// One read of the journal ends after this many bytes, with at least one record.
pub const JOURNAL_READ_BYTES_MAX: usize = 1024 * 1024;
/// Records that a follower takes from the journal at a time.
pub const JOURNAL_FOLLOW_RECORDS_MAX: usize = 256;
/// Distance between the remembered offsets in a segment, in bytes.
pub const JOURNAL_INDEX_STEP: u64 = 64 * 1024;
/// Volatile events kept for readers, in bytes of payload. Policy as for their number.
pub const VOLATILE_EVENTS_BYTES_MAX: usize = 1024 * 1024;

// Executions.

/// Scripts at once on one node. More wait as `queued`.
pub const SCRIPTS_RUNNING_MAX: usize = 32;
pub const SCRIPTS_QUEUED_MAX: usize = 256;
/// From a stop or timeout to the final state.
pub const STOP_GRACE_MS: u64 = 200;
/// The output of one execution. Longer: cut, with a notice, the run goes on.
pub const EXECUTION_LOG_LEN_MAX: u64 = 16 * 1024 * 1024;
pub const EXECUTION_ARTIFACTS_MAX: usize = 256;
pub const ARTIFACT_LEN_MAX: usize = 64 * 1024 * 1024;
pub const EXECUTION_RESULT_LEN_MAX: usize = 1024 * 1024;
/// Finished executions that a node remembers. More: the oldest go, with their artifacts.
pub const EXECUTIONS_KEPT: usize = 1_000;
/// Answers of commands that a node remembers, for commands that come again. More: the oldest go.
pub const COMMANDS_KEPT: usize = 10_000;
/// After losing its agent a running execution becomes `lost`.
pub const EXECUTION_LEASE_MS: i64 = 90_000;

// Scripts.

pub const SCRIPT_MEMORY_MAX: usize = 100 * 1024 * 1024;
pub const SCRIPT_TIMEOUT_REST_MS: u64 = 30_000;
pub const SCRIPT_VALUE_DEPTH_MAX: usize = 64;
pub const SCRIPT_HTTP_BODY_LEN_MAX: usize = 16 * 1024 * 1024;
pub const SCRIPT_FILE_LEN_MAX: usize = 16 * 1024 * 1024;
/// Pictures that one script holds at once. More: `busy`.
pub const SCRIPT_IMAGES_MAX: usize = 64;
/// Stack of a thread that runs a script, in bytes; engines bound their own depth below it.
pub const SCRIPT_STACK_LEN: usize = 16 * 1024 * 1024;
/// Nested calls in Rhai.
pub const SCRIPT_CALL_DEPTH_MAX: usize = 128;
/// Nested expressions in Rhai.
pub const SCRIPT_EXPR_DEPTH_MAX: usize = 128;
/// One text in Rhai, in bytes.
pub const SCRIPT_TEXT_LEN_MAX: usize = 16 * 1024 * 1024;
/// Items of one list or map and bytes of one blob in Rhai, all that they contain counted.
pub const SCRIPT_LIST_LEN_MAX: usize = 4 * 1024 * 1024;

// Captures.

pub const CAPTURES_KEPT: usize = 100;
pub const CAPTURE_TIMEOUT_MS: u64 = 5_000;
/// Threads that encode one JPEG, the caller's included.
pub const ENCODE_THREADS_MAX: usize = 4;
/// Pixels in one frame. More: `capture_region_invalid`.
pub const FRAME_PIXELS_MAX: u64 = 16_384 * 16_384;

// The database.

/// Jobs waiting for the database thread. Full: the caller waits.
pub const STORE_QUEUE_LEN_MAX: usize = 1_024;
/// Jobs committed in one transaction.
pub const STORE_GROUP_LEN_MAX: usize = 256;

// The display.

/// One answer of the X server. Later: the connection is dropped and the call is `display_unavailable`.
pub const DISPLAY_REPLY_TIMEOUT_MS: u64 = 5_000;
/// A display of our own that is not up by then is an error.
pub const DISPLAY_START_TIMEOUT_MS: u64 = 20_000;
/// A display of our own that has not ended by then is killed.
pub const DISPLAY_STOP_TIMEOUT_MS: u64 = 2_000;
/// Shared segments that wait for the next frame. More: the smallest are freed.
pub const FRAME_SEGMENTS_IDLE_MAX: usize = 2;
/// Shared segments held by readers of frames. More: a frame is a private copy.
pub const FRAME_SEGMENTS_HELD_MAX: usize = 32;
/// Windows listed. More: the lowest are left out.
pub const WINDOWS_LISTED_MAX: usize = 1_024;
/// A window's text property is cut here, in bytes.
pub const WINDOW_TEXT_LEN_MAX: usize = 4 * 1024;
// Windows.

/// New capture sessions after a fault that may pass. More: `capture_failed`.
pub const WGC_SESSION_REBUILDS_MAX: u32 = 3;
/// Between two looks at a process that is waited for.
pub const PROCESS_POLL_MS: u64 = 50;
/// Until a window shows what was asked of it. Later: `window_refused`.
pub const WINDOW_EFFECT_TIMEOUT_MS: u64 = 3_000;
/// Between two looks at a window that something is waited for.
pub const WINDOW_POLL_MS: u64 = 20;
/// Ancestors of a window that are climbed to find its top-level one.
pub const WINDOW_DEPTH_MAX: usize = 64;
/// Damaged captures kept aside for a person to look at. More: the oldest are deleted.
pub const CAPTURES_QUARANTINED_MAX: usize = 100;
// Input (the guard process, X11 typing).

/// Largest message between the agent and its input guard. Longer: the guard ends, its keys released.
pub const GUARD_MESSAGE_LEN_MAX: usize = 300 * 1024;
/// From starting the guard to its first word; past it the guard is given up.
pub const GUARD_START_TIMEOUT_MS: u64 = 10_000;
/// A guard that does not answer a short request in this time is given up and replaced on next use.
pub const GUARD_REPLY_TIMEOUT_MS: u64 = 10_000;
/// Requests that wait in the guard while it types. More: `input_failed`.
pub const GUARD_QUEUE_LEN_MAX: usize = 64;
/// How often a waiting caller asks whether it is cancelled.
pub const CANCEL_POLL_MS: u64 = 10;
/// Text typed in one call, in bytes. Longer: `input_failed`.
pub const TYPE_TEXT_LEN_MAX: usize = 256 * 1024;
/// Wheel clicks in one call and axis. More: `input_failed`.
pub const SCROLL_CLICKS_MAX: u32 = 1_000;
/// How long a window that was typed into may take to read the new keymap, then `unverifiable`.
pub const KEYMAP_READ_TIMEOUT_MS: u64 = 3_000;
/// A client that is found asleep this many times in a row has handled its keys.
pub const KEYMAP_IDLE_LOOKS: usize = 4;
pub const KEYMAP_LOOK_EVERY_MS: u64 = 2;
/// The same for a client of another host, which cannot be looked at: silence after its last read.
pub const KEYMAP_SILENCE_MS: u64 = 300;
/// Borrowed keycodes go back to the layout after this much idle time.
pub const KEYMAP_RESTORE_AFTER_MS: u64 = 2_000;
/// One step of a smooth pointer move.
pub const POINTER_STEP_MS: u64 = 8;
/// Longest smooth pointer move or drag. Longer: `invalid_params`.
pub const POINTER_MOVE_MS_MAX: u64 = 60_000;
/// Keys in one chord. More: `key_unknown`.
pub const CHORD_KEYS_MAX: usize = 8;

// Clipboard and processes.

/// Clipboard content taken or given, in bytes. More: `clipboard_failed`.
pub const CLIPBOARD_LEN_MAX: usize = 64 * 1024 * 1024;
/// Silence of the other side of a clipboard transfer, then `clipboard_failed`.
pub const CLIPBOARD_SILENCE_MS: u64 = 3_000;
/// Clipboard transfers in parts that one owner serves at once. More: refused.
pub const CLIPBOARD_TRANSFERS_MAX: usize = 16;
/// One part of a clipboard transfer in parts.
pub const CLIPBOARD_PART_LEN: usize = 256 * 1024;
/// Processes of one tree that are ended together; passes over the process list until none is left.
pub const PROCESS_TREE_PASSES_MAX: usize = 16;
// A run's output.

/// Bytes of output that wait for the disk. Full: the script waits at its next line.
pub const OUTPUT_PENDING_LEN_MAX: usize = 1024 * 1024;
/// One stored line. Longer ones are split; the stream files keep them whole.
pub const OUTPUT_LINE_LEN_MAX: usize = 32 * 1024;
/// Bytes of output in one journal record.
pub const OUTPUT_BATCH_LEN_MAX: usize = 64 * 1024;
/// How long output is gathered before it is stored.
pub const OUTPUT_GATHER_MS: u64 = 25;

// What scripts keep.

/// A key's or field's length in bytes. Longer: `invalid_params`.
pub const KV_KEY_LEN_MAX: usize = 1_024;
/// A value's length in bytes. Longer: `invalid_params`.
pub const KV_VALUE_LEN_MAX: usize = 1024 * 1024;

// Streams and terminal sessions.

/// Pieces queued in each direction of a stream. Full: the sender waits.
pub const STREAM_PIECES_MAX: usize = 1;
/// From `session.create` until the program runs.
pub const SESSION_CREATE_TIMEOUT_MS: u64 = 30_000;
/// From `session.kill` until every process is gone, SIGKILL included.
pub const SESSION_KILL_TIMEOUT_MS: u64 = 10_000;
/// Largest piece that a session sends, so that little is under way on a slow link.
pub const STREAM_PIECE_LEN_MAX: usize = 16 * 1024;
/// Bytes of output that wait for a console, or came within the pause between two screens, beyond which it
/// gets a screen instead.
pub const CONSOLE_LAG_MAX: usize = 64 * 1024;
/// The same while a screen is under way to a console that acknowledges.
pub const CONSOLE_LAG_BEHIND_SCREEN_MAX: usize = 4 * 1024;
/// Bytes under way to a console that acknowledges, beyond which no more are sent: a third of a second on a
/// link of 100 KB/s.
pub const CONSOLE_UNDER_WAY_MAX: u64 = 32 * 1024;
/// Bytes after which a console acknowledges, beside the end of each screen.
pub const CONSOLE_ACK_EVERY: u64 = 8 * 1024;
/// Output within the pause between two screens that a holder tells those that watch it; more is left out.
pub const HOLDER_TEE_LEN_MAX: usize = 4 * 1024;
/// How long a connection to a holder may be silent before another takes its place.
pub const HOLDER_CANDIDATE_MS: u64 = 100;
/// Watchers of a holder. One more takes the oldest one's place.
pub const HOLDER_WATCHERS_MAX: usize = 8;
/// Items that wait for a console. More: it counts as lagging.
pub const CONSOLE_ITEMS_MAX: usize = 4_096;
/// Least time between two screens for a lagging console.
pub const CONSOLE_SCREEN_PAUSE_MS: u64 = 16;
/// A program's synchronized update counts as ended after this time.
pub const SYNC_UPDATE_MS: u64 = 150;
/// A console that took nothing for this long while something waited is disconnected.
pub const CONSOLE_STALLED_MS: u64 = 30_000;
/// Consoles attached to one session. More: `too_many_sessions`.
pub const CONSOLES_PER_SESSION_MAX: usize = 32;
/// Terminal sessions of a node, ended ones included. More: `too_many_sessions`.
pub const SESSIONS_MAX: usize = 256;
/// How long an exclusive holder whose stream broke keeps its lease for its return.
pub const LEASE_GRACE_MS: u64 = 15_000;
/// How long an ended session is kept for review.
pub const SESSION_KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// Least time between two volatile chunk events, or typing marks, of a session.
pub const SESSION_NOTICE_PAUSE_MS: i64 = 1_000;
/// Output since the last checkpoint that makes the next one due.
pub const CHECKPOINT_BYTES: u64 = 4 * 1024 * 1024;
/// From the last output until a quiet session is checkpointed.
pub const CHECKPOINT_QUIET_MS: i64 = 300;
/// A session's name, in characters.
pub const SESSION_NAME_CHARS_MAX: usize = 64;
/// What `session.send` takes at once.
pub const SESSION_SEND_LEN_MAX: usize = 1024 * 1024;
/// An environment file. Longer: refused as `invalid_params`.
pub const ENV_FILE_LEN_MAX: u64 = 256 * 1024;
/// How long an init command waits for the shell's first output.
pub const INIT_COMMAND_WAIT_MS: u64 = 3_000;
/// Largest recording. Full: it ends, and says so in its last line.
pub const RECORDING_LEN_MAX: u64 = 256 * 1024 * 1024;

// The holder of a terminal session.

/// Body of one frame between agent and holder. Longer: the connection is closed.
pub const HOLDER_FRAME_LEN_MAX: usize = 1024 * 1024;
/// One piece of output on its way to the agent, and of the ring in memory.
pub const HOLDER_CHUNK_LEN: usize = 64 * 1024 - 64;
/// Output kept from before the last checkpoint, for a console that resumes. Older output goes.
pub const HOLDER_RING_KEPT_LEN: u64 = 256 * 1024;
/// Output since the last checkpoint. Full: the holder stops reading, and the program waits.
pub const HOLDER_RING_LEN_MAX: u64 = 8 * 1024 * 1024;
/// From a checkpoint until memory that a flood needed goes back; what is needed again meanwhile stays.
pub const HOLDER_RELEASE_MS: u64 = 1_000;
/// Changes of size since the last checkpoint. More: `busy`.
pub const HOLDER_RESIZES_MAX: usize = 4_096;
/// Input that the terminal has not taken yet. More: refused as a whole, `input_queue_full`.
pub const HOLDER_INPUT_LEN_MAX: usize = 1024 * 1024;
/// Answers that wait for the agent. Full: its next requests are read once it has taken them.
pub const HOLDER_ANSWERS_LEN_MAX: usize = 1024 * 1024;
/// Requests for older output that wait. More: `busy`.
pub const HOLDER_FETCHES_MAX: usize = 64;
/// The screen of a checkpoint. Longer: the checkpoint is refused, the former one stays.
pub const HOLDER_SCREEN_LEN_MAX: u64 = 16 * 1024 * 1024;
/// The history of a checkpoint, all blocks together. More: as above.
pub const HOLDER_HISTORY_LEN_MAX: u64 = 256 * 1024 * 1024;
/// From asking a session to end until it is killed.
pub const HOLDER_KILL_GRACE_MS: u64 = 2_000;
/// From the child's end until its terminal is given up although somebody keeps it open.
pub const HOLDER_DRAIN_MS: u64 = 500;
/// From the end of a session until its holder ends although the agent is still connected.
pub const HOLDER_LINGER_MS: u64 = 5_000;
/// From asking for a holder until it must have answered.
pub const HOLDER_START_MS: u64 = 10_000;
/// A request for a holder and its answer, in bytes. A longer text is cut.
pub const HOLDER_ANSWER_LEN_MAX: usize = 4 * 1024;
/// Tries to lock a session's folder, which a scan may hold for a moment; then `session_held`.
pub const HOLDER_LOCK_TRIES_MAX: u32 = 100;
/// Between two of those tries.
pub const HOLDER_LOCK_PAUSE_MS: u64 = 10;
/// The first answer of a holder; later: `unavailable`.
pub const HOLDER_HELLO_MS: u64 = 10_000;
/// Bytes that an agent has for a holder that does not take them. Full: `busy`, nothing half sent.
pub const HOLDER_SEND_QUEUE_LEN_MAX: usize = 16 * 1024 * 1024;
/// How long the agent's large buffer of a session stays after it was last needed.
pub const HOLDER_BUFFER_REST_MS: u64 = 2_000;
/// A session's specification in bytes. Longer: refused.
pub const SESSION_SPEC_LEN_MAX: u64 = 1024 * 1024;

// Attention.

/// Quiet after output or input until a look at the terminal, its foreground process and its screen …
pub const ATTENTION_LOOK_MS: i64 = 300;
/// … and the later looks, counted from the same moment; then none until something happens.
pub const ATTENTION_LOOK_AGAIN_MS: [i64; 2] = [1_000, 3_000];
/// After that, while a program runs that reads nothing, at most this long passes between two looks.
pub const ATTENTION_LOOK_RARE_MS_MAX: i64 = 60_000;
/// A session that never falls quiet is looked at this long after the first unseen output.
pub const ATTENTION_LOOK_LATEST_MS: i64 = 1_000;
/// A BEL this soon after a key is the answer to that key; it is not counted.
pub const ATTENTION_BELL_ECHO_MS: i64 = 500;
/// Facts kept with a state. More: the lowest ranks are left out.
pub const ATTENTION_EVIDENCE_MAX: usize = 6;
/// Characters of a sentence or quotation of evidence. Longer: cut, with an ellipsis.
pub const ATTENTION_TEXT_MAX: usize = 240;
/// Characters of a program's name in OSC 7501. Longer: left out.
pub const ATTENTION_APP_LEN_MAX: usize = 32;
/// Bottom rows of a screen that rules may see. More: the upper ones are left out.
pub const ATTENTION_ROWS_MAX: usize = 40;
/// Characters of one such row. Longer: cut.
pub const ATTENTION_ROW_LEN_MAX: usize = 512;
/// Bytes of one rule file. Longer: refused.
pub const ATTENTION_RULE_FILE_LEN_MAX: usize = 64 * 1024;
/// Rules in one file, and texts in one rule. More: the file is refused.
pub const ATTENTION_RULES_MAX: usize = 64;
pub const ATTENTION_RULE_TEXTS_MAX: usize = 64;
/// Rule files in use. More: the merge is refused.
pub const ATTENTION_RULE_FILES_MAX: usize = 64;
/// Sessions that one console ranks. More: a further one is not listed until another goes.
pub const ATTENTION_CONSOLE_SESSIONS_MAX: usize = 4_096;
/// Between a text that was sent and its Enter, so that programs tell a paste from a line.
pub const SEND_ENTER_PAUSE_MS: u64 = 60;
/// Matches of a search. More: the rest is not told.
pub const SEARCH_MATCHES_MAX: usize = 10_000;
/// Bytes since a console's position that a resume fetches; further back it gets a snapshot.
pub const CONSOLE_RESUME_MAX: u64 = 256 * 1024;
/// Output at once that counts as a flood: its session is fed by a thread of its own.
pub const FEED_TURN_LEN: usize = 32 * 1024;
/// Silence that ends a flood.
pub const FEED_REST_MS: u64 = 5;
/// How long the thread of a flood looks again, instead of sleeping, after as much output at once as below:
/// a processor that is woken for every few kilobytes costs more than one that stays awake.
pub const FEED_SPIN_US: u64 = 400;
pub const FEED_SPIN_LEN: usize = 4 * 1024;
/// Flooded sessions with a thread. More: their tasks make way for others after every turn.
pub const FEED_FLOODS_MAX: usize = 16;
/// Records looked through, and rows shown, by the debug view of events.
pub const DEBUG_EVENTS_SEARCH_MAX: u64 = 10_000;
pub const DEBUG_EVENTS_MAX: usize = 200;

// Consoles.

/// One paste, in bytes. Longer ones reach the program as several.
pub const CONSOLE_PASTE_LEN_MAX: usize = 4 * 1024 * 1024;
/// One key sequence of the outer terminal, in bytes. Longer: dropped.
pub const CONSOLE_SEQUENCE_LEN_MAX: usize = 4 * 1024;
/// Silence after which a lone Escape is a key and not the start of a sequence.
pub const CONSOLE_ESCAPE_MS: u64 = 20;
/// Least time between two frames while output floods.
pub const CONSOLE_FRAME_MS: u64 = 16;
/// Output since the last frame, in bytes, up to which a frame follows at once: an echo.
pub const CONSOLE_ECHO_LEN_MAX: usize = 4 * 1024;
/// How long after a key small output counts as its answer and is painted at once, frame after frame.
pub const CONSOLE_ANSWER_MS: u64 = 100;
/// How long a synchronized update of a program, or a snapshot on its way, may hold back the screen.
pub const CONSOLE_SYNC_TIMEOUT_MS: u64 = 150;
/// Bytes read from one session before the keyboard is looked at again.
pub const CONSOLE_TURN_LEN_MAX: usize = 256 * 1024;
/// Input that waits for a slow link, in bytes. More: refused and shown.
pub const CONSOLE_INPUT_QUEUED_MAX: usize = 8 * 1024 * 1024;
/// Events of a Windows console that wait for the loop. Full: its reader waits.
pub const CONSOLE_EVENTS_MAX: usize = 64;
/// First and longest wait before a lost session is attached again.
pub const CONSOLE_RETRY_MS_MIN: u64 = 200;
pub const CONSOLE_RETRY_MS_MAX: u64 = 5_000;
/// Between two looks at the list of a place that tells no events, and of one that does.
pub const CONSOLE_LIST_EVERY_MS: u64 = 2_000;
pub const CONSOLE_LIST_EVERY_QUIET_MS: u64 = 5_000;
/// How long events are gathered before the list is read again.
pub const CONSOLE_LIST_GATHER_MS: u64 = 50;
/// Sessions whose last screen is kept for a quick return. More: the oldest is forgotten.
pub const CONSOLE_PANES_KEPT_MAX: usize = 8;
/// Panes side by side. More: refused.
pub const CONSOLE_PANES_MAX: usize = 6;
/// How long a notice stays in the footer.
pub const CONSOLE_NOTICE_MS: u64 = 4_000;
/// How long somebody counts as typing after the last sign of it.
pub const CONSOLE_TYPING_MS: u64 = 2_000;
/// Text of a dialogue's field, in characters. More is not taken.
pub const CONSOLE_FIELD_LEN_MAX: usize = 4 * 1024;
/// Copied text, in bytes. More: refused and shown.
pub const CONSOLE_COPY_LEN_MAX: usize = 1024 * 1024;
/// Two clicks this close together are a double click.
pub const CONSOLE_CLICK_MS: u64 = 400;
/// After the focused session ended, keys choose among the offered ones only after this much silence:
/// what was being typed was meant for the program.
pub const CONSOLE_OFFER_QUIET_MS: u64 = 600;
/// From the end of the loop until a terminal that takes no bytes is given up.
pub const CONSOLE_RESTORE_TIMEOUT_MS: u64 = 500;
/// Scrollback that a console's mirror keeps, so that a new size wraps the same lines as at the owner.
/// Older lines are forgotten; the view of the scrollback reads them from the owner.
pub const CONSOLE_MIRROR_LINES: usize = 1_000;
// Terminal grids.

/// Fewest columns and rows of a grid; a fullwidth character needs two columns. Fewer: clamped.
pub const GRID_SIDE_MIN: u16 = 2;
/// Most columns and rows of a grid. More: clamped.
pub const GRID_SIDE_MAX: u16 = 1_000;
/// An unfinished escape sequence, in bytes. Longer: it is dropped whole, to its end.
pub const GRID_SEQUENCE_LEN_MAX: usize = 64 * 1024;
/// Depth of the title stack and of each keyboard stack. Full: the oldest entry goes.
pub const GRID_STACK_LEN_MAX: usize = 32;
/// Lines of scrollback when nothing else is set. Full: the oldest line goes.
pub const GRID_SCROLLBACK_DEFAULT: usize = 10_000;
/// All encoded scrollback of one grid, in bytes. More: the oldest block goes.
pub const GRID_HISTORY_LEN_MAX: usize = 16 * 1024 * 1024;
/// A block of encoded scrollback is closed past this many bytes.
pub const GRID_HISTORY_BLOCK_LEN: usize = 64 * 1024;
/// Lines that may scroll out of the emulator before they are encoded.
pub const GRID_HOT_LINES: usize = 32;
/// Combining marks on one cell. More: ignored.
pub const GRID_MARKS_MAX: usize = 16;
/// Address of one link, in bytes. Longer: the text is shown without a link.
pub const GRID_LINK_LEN_MAX: usize = 2 * 1024;
/// Name that groups the parts of a link, in bytes. Longer: left out.
pub const GRID_LINK_ID_LEN_MAX: usize = 250;
/// A title is cut here, in characters.
pub const GRID_TITLE_CHARS_MAX: usize = 1_024;
/// Title and text of a notification that comes in parts, in bytes. Longer: cut.
pub const GRID_NOTICE_LEN_MAX: usize = 4 * 1024;
/// Lines of one logical line that a change of width follows into the scrollback. Longer: a break there.
pub const GRID_REFLOW_LINES_MAX: usize = 2_000;
/// Results of one search. More: the oldest are left out.
pub const GRID_MATCHES_MAX: usize = 10_000;
/// Tries, and the pause between them, to reach a holder that is about to end.
pub const HOLDER_END_TRIES_MAX: u32 = 100;
pub const HOLDER_END_PAUSE_MS: u64 = 20;

// Attention.
/// From starting the agent in the background until it answers.
pub const AGENT_START_MS: u64 = 10_000;

// Streams on the wires.

/// A control piece of a stream, in bytes. A reader that has taken everything holds back at most half
/// of the first credit, so that one of this length, kind byte included, always gets through. Longer:
/// the stream ends with `invalid_message`.
pub const STREAM_CONTROL_LEN_MAX: usize = CHANNEL_CREDIT_FIRST / 2 - 1;
/// A message on a console's WebSocket, either way. Longer: the socket closes.
pub const SOCKET_MESSAGE_LEN_MAX: usize = 64 * 1024;
/// From asking a workstation for its sessions until its last answer is used instead.
pub const SESSION_LIST_TIMEOUT_MS: u64 = 2_000;
/// One workstation's list of sessions as JSON. Longer: its last good list is used instead.
pub const SESSION_LIST_LEN_MAX: usize = 4 * 1024 * 1024;
/// Sessions kept of one workstation's list. More are cut off.
pub const SESSIONS_PER_MACHINE_MAX: usize = 1_024;
/// Bytes typed at a console that wait for its workstation. Full: the socket is not read.
pub const CONSOLE_INPUT_QUEUED_LEN_MAX: usize = 1024 * 1024;
/// A console's socket that takes nothing for so long is closed with `console_too_slow`.
pub const CONSOLE_WRITE_TIMEOUT_MS: u64 = 30_000;
/// What the system keeps unsent of an HTTP connection; it bounds a console that gives no credit.
pub const HTTP_SEND_BUFFER_LEN: usize = 128 * 1024;
/// Silence on an HTTP connection until the system asks whether the other end is alive.
pub const HTTP_KEEPALIVE_MS: u64 = 30_000;
/// How long a console that resumes waits for old bytes; then it gets a screen.
pub const SESSION_FETCH_MS: u64 = 5_000;
