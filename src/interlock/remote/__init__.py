"""The same house seen through a server: what a program does with a store, done over HTTP.

Reading order:

    interfaces   what a store and a server both offer to programs, as protocols
    http_client  requests and answers: repeated where that is harmless, errors by their code
    answers      what a server answers with, as far as it is read here
    jobs         everything that is done with jobs
    journal      the journal, and the live events that say when there is news in it
    lines        what attempts have written, as it comes
    waiters      waiting for jobs to end
    runtime    all of it together, on one connection
"""
