-- A first script: opens a terminal, types into it, and brings a picture of it home.
--
--   wingman run first.lua --arg who=Ada

local who = args.get("who", "world")

log.info("the screen has " .. screen.getScreenWidth() .. " x " .. screen.getScreenHeight() .. " pixels")

-- The shell names its window, so the window's title tells when the shell is there.
local pid = process.start("xterm", { "-e", "sh", "-c", "printf '\\033]2;first script\\007'; exec sh" })
log.info("started xterm as process " .. pid)

if not window.waitFor("first script", 10000) then
	error("the terminal did not open within 10 seconds")
end
local handle = window.find("first script")
window.activate(handle)
util.sleep(300)

input.type("echo Hello, " .. who .. "! ÄÖÜ €\n")
util.sleep(500)

local shot = screen.screenshot("first.png")
log.info("stored " .. shot.name .. ", " .. shot.width .. " x " .. shot.height .. " pixels")

process.terminate(pid)
result.set({ hello = who, picture = shot.name })
