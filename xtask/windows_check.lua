-- What `cargo xtask windows --run` runs on the Windows agent: every part of the desktop once, with
-- Notepad as the program that takes the input.

local TEXT = "Grüße, 世界! 1+1=2"

local pid = process.start("notepad.exe")
assert(window.waitFor({pid = pid, timeout = 30000}), "no window of Notepad")
local notepad = window.find({pid = pid})
window.activate(notepad)
assert(window.getForeground() == notepad, "Notepad is not in front")

window.place(notepad, {x = 120, y = 90, width = 640, height = 400})
local bounds = window.getBounds(notepad)
assert(bounds.x == 120 and bounds.y == 90, "Notepad is not where it was put")

input.click(bounds.x + 200, bounds.y + 200)
local at = input.pointer()
assert(at.x == bounds.x + 200 and at.y == bounds.y + 200, "the pointer is elsewhere")

input.type(TEXT)
input.press("ctrl+a")
clipboard.setText("before")
local copied
for _ = 1, 100 do
    input.press("ctrl+c")
    input.delay(100)
    copied = clipboard.getText()
    if copied == TEXT then
        break
    end
end
assert(copied == TEXT, "typed " .. TEXT .. ", copied " .. tostring(copied))

input.keyDown("shift")
log.info("typed and copied: " .. copied)
assert(process.exists(pid), "Notepad is not in the process list")
