SELECT interlock.current_epoch()
